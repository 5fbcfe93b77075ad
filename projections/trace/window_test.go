package trace

import (
	"testing"
	"time"
)

// A window that begins in the last month of time ends with it.
func TestWindow_EndOfTime(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for _, from := range []time.Time{latest, latest.Add(-time.Hour), latest.Add(-maxWindow)} {
		start, end := window(&from, nil, now, now)
		if !start.Equal(from) || !end.Equal(latest) || checkWindow(start, end) != nil {
			t.Errorf("from %s: %s to %s", from, start, end)
		}
		if _, err := end.MarshalJSON(); err != nil {
			t.Error(err)
		}
	}
}
