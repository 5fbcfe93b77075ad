package transfer

import (
	"encoding/json"
	"testing"

	client "github.com/annals-project/annals/client"
)

// The estimates of several requests add up, and the later ones have what the earlier ones leave.
func TestEstimate_Sum(t *testing.T) {
	number := func(text string) *json.Number { n := json.Number(text); return &n }
	one := func(points int, credits, left string, fits bool, first int) client.Estimate {
		return client.Estimate{
			DataPoints: points, Bytes: 10, Credits: number(credits), Fits: fits, FitsFirst: first, Metered: true, PointsOmitted: 1,
			Files: make([]client.EstimatedFile, 1), Batches: make([]client.EstimatedBatch, 2),
			Points: make([]client.EstimatedPoint, points-1), Balance: client.EstimateBalance{Left: number(left)},
		}
	}
	for name, c := range map[string]struct {
		requests []client.Estimate
		fits     bool
		first    int
		credits  string
	}{
		"all fit":              {[]client.Estimate{one(600, "600", "2000", true, 600), one(700, "700.5", "2000", true, 700)}, true, 1300, "1300.5"},
		"together too many":    {[]client.Estimate{one(600, "600", "1000", true, 600), one(700, "700", "1000", true, 700)}, false, 600, "1300"},
		"the first is too big": {[]client.Estimate{one(600, "600", "500", false, 500), one(700, "700", "500", false, 500)}, false, 500, "1300"},
	} {
		s := estimateSum{}
		for _, e := range c.requests {
			if err := s.add(e, make([]client.EstimatedFile, 1), true); err != nil {
				t.Fatal(err)
			}
		}
		if s.Fits != c.fits || s.FitsFirst != c.first || s.Credits.String() != c.credits || s.DataPoints != 1300 ||
			s.Bytes != 20 {
			t.Errorf("%s: %v %d %s", name, s.Fits, s.FitsFirst, s.Credits)
		}
		if len(s.Files) != 4 || len(s.Batches) != 4 || s.Batches[3].Index != 3 || len(s.Points) != 1000 ||
			s.PointsOmitted != 300 {
			t.Errorf("%s: %d files, %d batches, %d points, %d omitted", name, len(s.Files), len(s.Batches), len(s.Points), s.PointsOmitted)
		}
	}
}
