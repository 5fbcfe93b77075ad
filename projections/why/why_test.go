package why

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// headOf is a log and its waiter, which notes what is waited for.
type headOf struct {
	err    error
	waited []string
}

func (h *headOf) Head(context.Context) (eventstore.Position, error) { return 7, h.err }

func (h *headOf) Wait(_ context.Context, position eventstore.Position, names ...string) error {
	if position == 7 {
		h.waited = append(h.waited, names...)
	}
	return nil
}

// What is not complete is read once more, after the projections have applied the log.
func TestAgain(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		complete     []bool
		read, head   error
		reads, waits int
		err          error
	}{
		"complete at once":    {complete: []bool{true}, reads: 1},
		"complete later":      {complete: []bool{false, true}, reads: 2, waits: 1},
		"never complete":      {complete: []bool{false, false}, reads: 2, waits: 1},
		"a read fails":        {complete: []bool{false}, read: failed, reads: 1, err: failed},
		"the head is unknown": {complete: []bool{false}, head: failed, reads: 1, err: failed},
	} {
		h, reads := &headOf{err: c.head}, 0
		complete, err := again(t.Context(), projections.Head{Log: h, Waiter: h}, func() (bool, error) {
			reads++
			return c.complete[reads-1], c.read
		}, "access")
		if reads != c.reads || len(h.waited) != c.waits || complete != c.complete[reads-1] || !errors.Is(err, c.err) {
			t.Errorf("%s: %d reads, waited for %v: %t, %v", name, reads, h.waited, complete, err)
		}
		if c.waits == 1 && !slices.Equal(h.waited, []string{"access"}) {
			t.Errorf("%s: waited for %v", name, h.waited)
		}
	}
}

// A window that begins in the last month of time ends with it.
func TestWindow_EndOfTime(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for _, from := range []time.Time{latest, latest.Add(-time.Hour), latest.Add(-maxWindow)} {
		start, end := window(&instant.Written{At: from}, nil, now, now)
		if !start.Equal(from) || !end.Equal(latest) || end.Sub(start) > maxWindow {
			t.Errorf("from %s: %s to %s", from, start, end)
		}
		if _, err := end.MarshalJSON(); err != nil {
			t.Error(err)
		}
	}
}

func TestWindow_Dates(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		from, to   string
		start, end string // as they are used
		code       string
	}{
		{"2026-06-30", "2026-06-30", "2026-06-30T00:00:00Z", "2026-06-30T23:59:59.999999Z", ""},
		{"2026-05-30", "2026-06-30", "2026-05-30T00:00:00Z", "2026-06-30T23:59:59.999999Z", ""},
		{"2026-05-29", "2026-06-30", "", "", fault.CodeRangeTooWide},
		{"2026-05-29T23:59:59.999999Z", "2026-06-30", "", "", fault.CodeRangeTooWide},
		{"2026-06-30T23:59:59.999999Z", "2026-06-30", "2026-06-30T23:59:59.999999Z", "2026-06-30T23:59:59.999999Z", ""},
		{"2026-07-01", "2026-06-30", "", "", fault.CodeInvalidRange},
		{"", "2026-06-30", "2026-05-31T00:00:00Z", "2026-06-30T23:59:59.999999Z", ""},
		{"", "2026-06-30T00:00:00Z", "2026-05-30T00:00:00Z", "2026-06-30T00:00:00Z", ""},
		{"2026-06-30", "", "2026-06-30T00:00:00Z", "2026-07-31T00:00:00Z", ""},
		{"2026-06-30T00:00:00-07:00", "2026-06-30T07:00:00Z", "2026-06-30T07:00:00Z", "2026-06-30T07:00:00Z", ""},
		{"9999-12-31", "9999-12-31", "9999-12-31T00:00:00Z", "9999-12-31T23:59:59.999999Z", ""},
	} {
		from, to := read(t, c.from), read(t, c.to)
		err := checkWindow(from, to)
		if f, is := errors.AsType[*fault.Error](err); is != (c.code != "") || is && f.Code != c.code {
			t.Errorf("%s to %s: %v, want %q", c.from, c.to, err, c.code)
		} else if !is {
			start, end := window(from, to, now, now)
			if got := [2]string{start.Format(time.RFC3339Nano), end.Format(time.RFC3339Nano)}; got != [2]string{c.start, c.end} {
				t.Errorf("%s to %s: %s, want %s to %s", c.from, c.to, got, c.start, c.end)
			}
		}
	}
}

func read(t *testing.T, text string) *instant.Written {
	t.Helper()
	if text == "" {
		return nil
	}
	w, err := instant.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	return &w
}
