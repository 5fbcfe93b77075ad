package requestlog

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	_ "github.com/annals-project/annals/internal/seedtest"
)

// matches is the meaning of a query.
func matches(r Record, q Query) bool {
	has := func(n int, ok bool) bool { return n == 0 || ok }
	found := q.Search == "" || strings.EqualFold(r.RequestID.String(), q.Search) || slices.Contains(r.IDs, q.SearchPoint) ||
		strings.Contains(strings.ToLower(r.Key.Name), strings.ToLower(q.Search))
	return !r.ReceivedAt.Before(q.From) && r.ReceivedAt.Before(q.To) &&
		has(len(q.Statuses), slices.Contains(q.Statuses, r.Status)) &&
		has(len(q.Classes), slices.Contains(q.Classes, r.Status/100)) &&
		has(len(q.Endpoints), slices.Contains(q.Endpoints, r.Endpoint)) &&
		has(len(q.KeyNames), slices.Contains(q.KeyNames, r.Key.Name)) && found
}

// TestLog_RandomQueries compares pages and histograms with a model.
func TestLog_RandomQueries(t *testing.T) {
	h := newHarness(t)
	rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a reproducible test
	project, neighbour := uuid.New(), uuid.New()
	points := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	endpoints := []string{"POST /api/v1/ingest", "POST /api/v1/recall", "GET /api/v1/usage"}
	names := []string{"first", "Second key", "third"}
	var all []Record
	failed := []uuid.UUID{uuid.New(), uuid.New()}
	for range 1500 {
		at := noon.Add(-time.Duration(rnd.Int64N(int64(40*24*time.Hour)) / int64(pick(rnd, 1, 20, 1000))))
		r := recordAt(pick(rnd, project, project, neighbour), at.Truncate(time.Microsecond))
		r.Endpoint, r.Status, r.Key.Name = pick(rnd, endpoints...), pick(rnd, 200, 202, 400, 404, 503), pick(rnd, names...)
		if rnd.IntN(4) == 0 {
			r.IDs = []uuid.UUID{pick(rnd, points...)}
		}
		if rnd.IntN(4) == 0 {
			r.IngestionID = pick(rnd, failed[0], failed[1], uuid.New())
		}
		all = append(all, r)
	}
	h.FailedSends = `select unnest(array['` + failed[0].String() + `', '` + failed[1].String() + `']::uuid[])
		where $1::uuid is not null`
	h.add(t, all...)
	slices.SortFunc(all, func(a, b Record) int {
		return cmp.Or(b.ReceivedAt.Compare(a.ReceivedAt), strings.Compare(string(b.RequestID[:]), string(a.RequestID[:])))
	})
	for range 150 {
		q := Query{First: pick(rnd, 1, 7, 25, 100)}
		q.To = noon.Add(-time.Duration(rnd.Int64N(int64(9 * 24 * time.Hour)))).Truncate(time.Microsecond)
		length := rnd.Int64N(int64(pick(rnd, time.Hour, 24*time.Hour, MaxRange)))
		q.From = q.To.Add(-time.Duration(length)).Truncate(time.Microsecond)
		if rnd.IntN(3) == 0 {
			q.Statuses = []int{pick(rnd, 200, 400, 503, 999), 202}
		}
		if rnd.IntN(4) == 0 {
			q.Classes = []int{pick(rnd, 2, 4, 5)}
		}
		if rnd.IntN(3) == 0 {
			q.Endpoints = []string{pick(rnd, endpoints...)}
		}
		if rnd.IntN(4) == 0 {
			q.KeyNames = []string{pick(rnd, names...), "unknown"}
		}
		switch rnd.IntN(6) {
		case 0:
			q.Search, q.SearchPoint = "point", pick(rnd, points...)
		case 1:
			q.Search = pick(rnd, all...).RequestID.String()
		case 2:
			q.Search = "SECOND"
		}
		check(t, h, project, all, q, failed)
	}
}

func check(t *testing.T, h *harness, project uuid.UUID, all []Record, q Query, failed []uuid.UUID) {
	t.Helper()
	var want []Record
	var totals Totals
	for _, r := range all {
		if r.Project != project || !matches(r, q) {
			continue
		}
		want = append(want, r)
		switch {
		case r.Status >= 400:
			totals.Rejected++
		case slices.Contains(failed, r.IngestionID):
			totals.FailedLater++
		default:
			totals.Accepted++
		}
	}
	var got []uuid.UUID
	for pages := 0; ; pages++ {
		page, err := h.List(t.Context(), project, q)
		if err != nil {
			t.Fatal(err)
		}
		if page.TotalCount != int64(len(want)) || len(page.Entries) > q.First || pages > len(want) {
			t.Fatalf("page %d of %+v has %d of %d calls, want %d in all", pages, q, len(page.Entries),
				page.TotalCount, len(want))
		}
		for _, e := range page.Entries {
			got = append(got, e.RequestID)
		}
		if !page.HasMore {
			break
		}
		q.After = page.EndCursor
	}
	if !slices.Equal(got, ids(want)) {
		t.Fatalf("%+v lists %d calls, want these %d", q, len(got), len(want))
	}
	hist, err := h.Histogram(t.Context(), project, q)
	if err != nil {
		t.Fatal(err)
	}
	if hist.Totals != totals {
		t.Fatalf("histogram of %+v has %+v, want %+v", q, hist.Totals, totals)
	}
	for i, b := range hist.Buckets {
		next := b.Start.Add(time.Duration(hist.BucketMinutes) * time.Minute)
		if i > 0 && !hist.Buckets[i-1].Start.Add(time.Duration(hist.BucketMinutes)*time.Minute).Equal(b.Start) {
			t.Fatalf("bucket %d begins at %s", i, b.Start)
		}
		var n int64
		for _, r := range want {
			if !r.ReceivedAt.Before(b.Start) && r.ReceivedAt.Before(next) {
				n++
			}
		}
		if n != b.Accepted+b.FailedLater+b.Rejected {
			t.Fatalf("bucket %s has %+v, want %d calls", b.Start, b.Totals, n)
		}
	}
}

func ids(records []Record) []uuid.UUID {
	var list []uuid.UUID
	for _, r := range records {
		list = append(list, r.RequestID)
	}
	return list
}

func TestSegments_CoverTheWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		epoch := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
		from := time.UnixMicro(epoch + rapid.Int64Range(0, int64(40*24*time.Hour/time.Microsecond)).Draw(t, "from")).UTC()
		length := rapid.Int64Range(0, int64(MaxRange/time.Microsecond)).Draw(t, "length")
		to := from.Add(time.Duration(length) * time.Microsecond)
		most := rapid.SampledFrom(steps).Draw(t, "most")
		at, before := from, step(0)
		rising := true
		for i, s := range segmentsOf(from, to, most) {
			if !s.from.Equal(at) || !s.from.Before(s.to) || s.step > most {
				t.Fatalf("segment %d is %v, want one from %s", i, s, at)
			}
			if s.step > 0 && (!s.step.floor(s.from).Equal(s.from) || !s.step.floor(s.to).Equal(s.to)) {
				t.Fatalf("segment %v does not begin and end at its step", s)
			}
			if i > 0 && s.step <= before {
				rising = false
			} else if i > 0 && !rising {
				t.Fatalf("steps rise again at %v", s)
			}
			at, before = s.to, s.step
		}
		if !at.Equal(to) {
			t.Fatalf("segments end at %s, want %s", at, to)
		}
	})
}

func TestBucket_AtMostAHundred(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := time.UnixMicro(rapid.Int64Range(0, 1<<50).Draw(t, "from")).UTC()
		to := from.Add(time.Duration(rapid.Int64Range(1, int64(MaxRange)).Draw(t, "length")))
		b := bucketOf(from, to)
		n := (to.Sub(b.floor(from)) + b.duration() - 1) / b.duration()
		if n > maxBuckets {
			t.Fatalf("%d buckets of %d minutes", n, b)
		}
	})
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	if b := bucketOf(day, day.AddDate(0, 0, 1)); b != 15 {
		t.Errorf("a day has buckets of %d minutes, want 15", b)
	}
}

func TestPack_RoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, packFrom - 1, packFrom, MaxBody} {
		for _, fill := range []byte{'a', 0} {
			body := make([]byte, n)
			for i := range body {
				body[i] = fill + byte(i%7)
			}
			got, err := unpack(pack(body))
			if err != nil || string(got) != string(body) {
				t.Errorf("%d bytes came back as %d, %v", n, len(got), err)
			}
		}
	}
	if n := len(pack(make([]byte, MaxBody))); n > 1000 {
		t.Errorf("a body of zeros takes %d bytes", n)
	}
	if _, err := unpack([]byte{9}); err == nil {
		t.Error("an unknown encoding was read")
	}
}
