package requestlog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/runtest"
)

func TestCosts_ByDayAndKey(t *testing.T) {
	h := newHarness(t)
	one, two, foreign := uuid.New(), uuid.New(), uuid.New()
	charged := func(project uuid.UUID, at time.Time, key string, tenths int64) Record {
		r := recordAt(project, at)
		r.Key.Name, r.CreditTenths = key, &tenths
		return r
	}
	free := recordAt(one, noon)
	evening := time.Date(2026, 11, 20, 23, 59, 59, 0, time.UTC)
	h.add(t, free, charged(one, noon, "batch", 5), charged(one, evening, "batch", 20), charged(two, noon, "app", 7),
		charged(one, evening.Add(time.Second), "app", 3), charged(foreign, noon, "app", 99))
	h.add(t, charged(one, noon.Add(time.Minute), "batch", 1))

	texts := func(from, to time.Time) string {
		t.Helper()
		list, more, err := h.Costs(t.Context(), []uuid.UUID{one, two}, from, to)
		runtest.Must(t, err)
		text := ""
		for _, c := range list {
			text += fmt.Sprintf("%d %t %s %d calls %d; ", c.Day.Day(), c.Project == one, c.Key.Name, c.CallCount, c.CreditTenths)
		}
		if more {
			t.Error("there are no more")
		}
		return text
	}
	const friday = "20 true batch 3 calls 26; 20 false app 1 calls 7; 20 true first 1 calls 0; "
	for _, c := range []struct {
		from, to time.Time
		want     string
	}{
		{noon, noon, friday},
		{noon, evening.Add(time.Second), friday + "21 true app 1 calls 3; "},
		{noon.AddDate(0, 0, -9), noon.AddDate(0, 0, -1), ""},
	} {
		if got := texts(c.from, c.to); got != c.want {
			t.Errorf("%s to %s: %s", c.from, c.to, got)
		}
	}
	_, _, err := h.Costs(t.Context(), []uuid.UUID{one}, noon.AddDate(0, 0, -32), noon)
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != fault.CodeRangeTooWide {
		t.Errorf("33 days: %v", err)
	}

	// What was written before the counts had charges.
	_, err = h.db.Exec(t.Context(), `alter table ops.request_counts drop credit_tenths;
		delete from ops.migrations where file = 'requestlog/2.sql'`)
	runtest.Must(t, err)
	runtest.Must(t, ops.Migrate(t.Context(), h.db, uuid.Nil))
	if got := texts(noon, noon); got != friday {
		t.Errorf("after the migration: %s", got)
	}
}
