package why

import (
	"errors"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
)

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
