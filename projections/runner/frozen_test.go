package runner

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// A lease, and the pause between the looks of a standby, are together shorter than the time in which a
// standby takes over. A lease is renewed several times before it is over.
func TestLease_TakeOverLimit(t *testing.T) {
	if longest := defaultLease + standbyPoll; longest >= takeOverLimit {
		t.Errorf("a standby takes over after up to %s, want less than %s", longest, takeOverLimit)
	}
	if pause := defaultLease / renewals; 3*pause > defaultLease || pause < 2*idleFlush {
		t.Errorf("a lease of %s is renewed every %s", defaultLease, pause)
	}
}

// A process that is frozen in the middle of a page keeps the locks of the page. The next holder of the lease
// ends that session, and the page is applied once.
func TestLease_HolderFrozenInAPage(t *testing.T) {
	t.Parallel()
	for name, locked := range map[string]string{
		"rows":       `update apples.totals set total = total + 100`,
		"checkpoint": `update apples.checkpoint set position = position + 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first := w.runtime(t, nil, tally{family: "apple"})
			stop := run(t, first)
			mustWait(t, first.Waiter(), w.add(t, "apple-1", 1), "apples")
			stop()
			// The lease is not over yet: a standby that looks at it meanwhile must not wait for the lock.
			w.exec(t, `update apples.checkpoint set holder = 'frozen', until = clock_timestamp() + interval '2 s'`)
			frozen, err := pgx.ConnectConfig(t.Context(), w.db.Config().ConnConfig.Copy())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = frozen.Close(t.Context()) })
			tx, err := frozen.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), locked); err != nil {
				t.Fatal(err)
			}
			second := w.runtime(t, nil, tally{family: "apple"})
			run(t, second)
			mustWait(t, second.Waiter(), w.add(t, "apple-1", 2), "apples")
			if err := tx.Commit(t.Context()); err == nil {
				t.Error("the page of the frozen process is committed")
			}
			w.wantTotals(t, "apples", total{"apple-1", 3, 2})
		})
	}
}
