package pgarray_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/pgarray"
)

func TestInstant_AsPostgresKeepsIt(t *testing.T) {
	for _, c := range []struct{ in, want time.Time }{
		{time.Date(2026, 11, 21, 13, 0, 0, 123456789, time.FixedZone("", 3600)), time.Date(2026, 11, 21, 12, 0, 0, 123456000, time.UTC)},
		{time.Date(0, 1, 1, 0, 0, 0, 999, time.UTC), time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if got := pgarray.Instant(c.in); !got.Equal(c.want) || got.Location() != time.UTC {
			t.Errorf("%s is kept as %s, want %s", c.in, got, c.want)
		}
	}
}

func TestOptional(t *testing.T) {
	if got := pgarray.Optional(""); got != nil {
		t.Errorf("empty is %q", *got)
	}
	if got := pgarray.Optional("a"); got == nil || *got != "a" {
		t.Errorf("a is %v", got)
	}
}

func TestColumns_OrderOfRows(t *testing.T) {
	rows := []uuid.UUID{{1}, {2}}
	same := func(id uuid.UUID) uuid.UUID { return id }
	if diff := cmp.Diff([]uuid.UUID{{1}, {2}}, pgarray.IDs(rows, same)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]byte{1, 2}, pgarray.Column(rows, func(id uuid.UUID) byte { return id[0] })); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]uuid.UUID{{7}}, pgarray.Keys(map[uuid.UUID]bool{{7}: true})); diff != "" {
		t.Error(diff)
	}
}
