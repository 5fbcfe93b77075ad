package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/projections/runner"
)

// pressureFixture is backpressure whose disk, log and clock the test sets.
type pressureFixture struct {
	*backpressure
	clock   time.Time
	freeNow uint64
	broken  error
	headNow eventstore.Position
	// stoppedBy is why the log accepts no more writes.
	stoppedBy error
	position  eventstore.Position
	space     node.Space
	log       *bytes.Buffer
}

func newPressureFixture() *pressureFixture {
	s := &pressureFixture{clock: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), freeNow: 1 << 40, log: &bytes.Buffer{}}
	s.backpressure = newBackpressure(pressureSources{
		minFree: 1000, bulkItems: 1000, bulkBytes: 1 << 20, logger: slog.New(slog.NewTextHandler(s.log, nil)),
		logSpace: func() node.Space { return s.space },
		free:     func() (uint64, error) { return s.freeNow, s.broken },
		stopped:  func() error { return s.stoppedBy },
		head:     func(context.Context) (eventstore.Position, error) { return s.headNow, s.broken },
		countAfter: func(_ context.Context, after eventstore.Position, limit int) (int, error) {
			return min(int(s.headNow-after), limit), s.broken
		},
		health: func(context.Context) []runner.Status {
			return []runner.Status{{Name: "datapoints", Position: s.position}}
		},
		now: func() time.Time { return s.clock },
	})
	return s
}

// reasons returns why writes are refused, for the operator.
func (p *backpressure) reasons() []string { return p.conditions().Remarks(true).WritesRefused }

func (s *pressureFixture) want(t testing.TB, when string, sends, deletions bool) {
	t.Helper()
	s.check(t.Context())
	for lane, taken := range map[admission.Lane]bool{
		admission.Live: sends, admission.Bulk: sends, admission.Settled: sends, admission.NoRoom: deletions,
	} {
		err := s.refuse(lane)
		if (err == nil) != taken {
			t.Errorf("%s: lane %q is answered with %v", when, lane, err)
		}
		if refused, ok := errors.AsType[*fault.Error](err); err != nil && (!ok ||
			refused.Code != fault.CodeServiceUnavailable || refused.Kind != fault.Unavailable) {
			t.Errorf("%s: refused with %v", when, err)
		}
	}
	if taken := len(s.reasons()) == 0; taken != sends {
		t.Errorf("%s: reasons for the operator: %q", when, strings.Join(s.reasons(), "; "))
	}
}

func TestBackpressure_DiskNearlyFull(t *testing.T) {
	s := newPressureFixture()
	for _, step := range []struct {
		free             uint64
		sends, deletions bool
	}{
		{1000, true, true},
		{999, false, true},
		{1249, false, true},
		{1250, true, true},
		{1000, true, true},
		{999, false, true},
		{120, false, true},
		{119, false, false},
		{149, false, false},
		{150, false, true},
		{1250, true, true},
	} {
		s.freeNow = step.free
		s.want(t, "free", step.sends, step.deletions)
	}
	s.freeNow = 10
	s.want(t, "full", false, false)
	s.broken = errors.New("the disk does not answer")
	s.freeNow = 1 << 40
	s.want(t, "as it was while nothing can be found out", false, false)
	s.broken = nil
	s.minFree, s.freeNow = 0, 0
	s.want(t, "switched off", true, true)
}

// A log whose disk is full refuses all writes, also without a check of the disk, with its numbers in the reason.
func TestBackpressure_LogFull(t *testing.T) {
	s := newPressureFixture()
	s.minFree = 0
	s.space = node.Space{Free: 40 << 20, Reserve: 128 << 20, Full: true}
	s.want(t, "full", false, false)
	if err := s.refuse(admission.Live); err == nil || !strings.Contains(err.Error(), "the disk of the event store is full") {
		t.Errorf("refused with %v", err)
	}
	want := "the disk of the event store is full: 40 MiB are free on the disk of ANNALS_DATA_DIR, the log leaves 128 MiB free"
	if got := s.reasons(); len(got) != 1 || got[0] != want ||
		!s.conditions().Has(condition.WritesRefused, string(logRefused)) {
		t.Errorf("operators read %q", got)
	}
	s.space = node.Space{Free: 1 << 30, Reserve: 128 << 20, Full: true}
	s.check(t.Context())
	if got := s.reasons(); len(got) != 1 || !strings.Contains(got[0], "file descriptor") {
		t.Errorf("without a descriptor operators read %q", got)
	}
	s.space.Full = false
	s.want(t, "with space again", true, true)
}

// Each cause is logged in words when it begins and when it ends, and not in between.
func TestBackpressure_LogsChangesInWords(t *testing.T) {
	s := newPressureFixture()
	s.minFree, s.freeNow = 1024<<20, 300<<20
	for range 10 {
		s.check(t.Context())
		s.freeNow -= 1 << 20
	}
	want := []string{
		`level=WARN msg="writes are refused" why=disk`,
		"300 MiB are free, 1024 MiB must be (ANNALS_MIN_FREE_DISK is 1024)",
	}
	for _, part := range want {
		if strings.Count(s.log.String(), part) != 1 {
			t.Errorf("want once %q:\n%s", part, s.log)
		}
	}
	s.freeNow = 1 << 40
	s.check(t.Context())
	if got := s.log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, `level=INFO msg="writes are accepted again" why=disk`) {
		t.Errorf("logged:\n%s", got)
	}
}

func TestBackpressure_ProjectionLagsFar(t *testing.T) {
	s := newPressureFixture()
	s.headNow, s.position = 5000, 5000
	s.want(t, "at the head", true, true)
	s.headNow = 20000
	s.want(t, "much to do for a moment", true, true)
	s.clock = s.clock.Add(lagTime - time.Millisecond)
	s.want(t, "not yet for long", true, true)
	s.clock = s.clock.Add(time.Millisecond)
	s.want(t, "for long", false, true)
	s.position = 20000 - lagEvents/2 - 1
	s.want(t, "nearly caught up", false, true)
	s.position++
	s.want(t, "caught up", true, true)
	s.position = 20000
	s.want(t, "at the head again", true, true)
	s.headNow += lagEvents
	s.clock = s.clock.Add(time.Second)
	s.want(t, "few events", true, true)
	s.clock = s.clock.Add(time.Hour)
	s.want(t, "few events for long", true, true)
	s.headNow++
	s.want(t, "one more", false, true)
}

// A projection that keeps up never lags far, because it has applied by now what it had not
// applied a while ago.
func TestBackpressure_ProjectionAlwaysALittleLate(t *testing.T) {
	s := newPressureFixture()
	for range 200 {
		s.clock = s.clock.Add(time.Second)
		s.position, s.headNow = s.headNow, s.headNow+5000
		s.want(t, "a second late", true, true)
	}
}

func TestBackpressure_LogStopped(t *testing.T) {
	s := newPressureFixture()
	s.want(t, "while it writes", true, true)
	s.stoppedBy = errors.New("input/output error")
	s.want(t, "once it cannot", false, false)
	if err := s.refuse(admission.Live); !strings.Contains(err.Error(), "restarted") ||
		strings.Contains(err.Error(), "input/output") {
		t.Errorf("error for the caller: %v", err)
	}
	if got := s.reasons(); len(got) != 1 || !strings.Contains(got[0], "input/output error") {
		t.Errorf("reasons for the operator: %q", got)
	}
}
