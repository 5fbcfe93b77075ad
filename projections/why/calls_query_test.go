package why_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/projections/why"
)

// A date alone in `to` is that day to its end, which is exclusive. The 31 days are measured before.
func TestQueryOf_Windows(t *testing.T) {
	for query, want := range map[string][2]string{
		"":                              {"2026-11-20T09:00:00Z", "2026-11-21T09:00:00Z"},
		"from=2026-11-21":               {"2026-11-21T00:00:00Z", "2026-11-21T09:00:00Z"},
		"to=2026-06-30":                 {"2026-06-30T00:00:00Z", "2026-07-01T00:00:00Z"},
		"to=2026-06-30T00:00Z":          {"2026-06-29T00:00:00Z", "2026-06-30T00:00:00Z"},
		"from=2026-06-30&to=2026-06-30": {"2026-06-30T00:00:00Z", "2026-07-01T00:00:00Z"},
		"from=2026-05-30&to=2026-06-30": {"2026-05-30T00:00:00Z", "2026-07-01T00:00:00Z"},
		"from=2026-06-30T12&to=2026-06-30T00:00:00-12:00": {"2026-06-30T12:00:00Z", "2026-06-30T12:00:00Z"},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		for _, paged := range []bool{true, false} { // a list, a histogram
			now := time.Date(2026, time.November, 21, 9, 0, 0, 0, time.UTC)
			q, err := why.CallQueryOf(values, now, apitest.Principal.Project, paged)
			if err != nil {
				t.Fatal(query, err)
			}
			if got := [2]string{q.From.Format(time.RFC3339Nano), q.To.Format(time.RFC3339Nano)}; got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}
	}
}
