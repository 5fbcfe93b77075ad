package datapoints_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/datapoints"
)

// leased leases from a lane and returns "source revision" of each item.
func (w *fixture) leased(lane work.Lane, limit int) []string {
	w.t.Helper()
	items, _, err := w.Queries.Lease(w.t.Context(), work.LeaseRequest{
		Lane: lane, Holder: "one", Limit: limit, Now: noon, Until: noon.Add(time.Minute),
	})
	runtest.Must(w.t, err)
	list := []string{}
	for _, i := range items {
		if i.Lane != lane {
			w.t.Errorf("lane of %+v is not %s", i, lane)
		}
		for name := range w.states {
			if id(name) == i.DataPoint {
				list = append(list, fmt.Sprintf("%s %d", name, i.Revision))
			}
		}
	}
	return list
}

func (w *fixture) wantLeased(lane work.Lane, want ...string) {
	w.t.Helper()
	same(w.t, "leased from "+string(lane), append([]string{}, want...), w.leased(lane, 100))
}

// release ends the leases of data points.
func (w *fixture) release(sources ...string) {
	w.t.Helper()
	dataPoints := make([]uuid.UUID, len(sources))
	for n, source := range sources {
		dataPoints[n] = id(source)
	}
	runtest.Must(w.t, w.Queries.Release(w.t.Context(), "one", dataPoints))
}

// batch sends a batch of one item for each source, and fans it out.
func (w *fixture) batch(send string, sources ...string) {
	w.t.Helper()
	in := w.committed(send, sources...)
	outcomes := make([]ingestion.Outcome, len(sources))
	for n, source := range sources {
		w.revised(send, source, in(n))
		outcomes[n] = ingestion.Outcome{Outcome: ingestion.Created, Revision: w.states[source].Revision}
		if outcomes[n].Revision > 1 {
			outcomes[n].Outcome = ingestion.Updated
		}
	}
	w.fannedOut(send, outcomes...)
}

func TestLease_LanesAreSeparate(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.batch("import", "a", "b", "c")
	w.revised("alone", "d", alone)
	w.project = neighbour.ID
	w.batch("import of the neighbour", "x", "y")
	w.apply()
	w.wantLeased(work.LaneLive, "d 1")
	w.wantLeased(work.LaneLive)
	// Fair between projects within the lane.
	same(t, "leased", []string{"a 1", "x 1", "b 1"}, w.leased(work.LaneBulk, 3))
	w.wantLeased(work.LaneBulk, "c 1", "y 1")
}

// A live revision lifts the earlier open revisions of its data point into the live lane, one after the
// other. A later revision of a batch follows in the bulk lane.
func TestLease_LiveRevisionLiftsEarlierOnes(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.batch("one", "a", "other")
	w.batch("two", "a")
	w.apply()
	w.revised("alone", "a", alone)
	w.batch("three", "a")
	w.apply()
	for revision := 1; revision <= 3; revision++ {
		w.wantLeased(work.LaneLive, fmt.Sprint("a ", revision))
		w.wantLeased(work.LaneLive)
		if revision == 1 {
			w.wantLeased(work.LaneBulk, "other 1")
		}
		w.derived([]string{"one", "two", "alone"}[revision-1], "a", 0, revision)
		w.apply()
		w.release("a")
	}
	w.wantLeased(work.LaneLive)
	w.wantLeased(work.LaneBulk, "a 4")
}

func TestBulkByProject(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	want := func(step string, mine, others datapoints.Bulk) {
		t.Helper()
		w.apply()
		all := map[uuid.UUID]datapoints.Bulk{}
		for id, b := range map[uuid.UUID]datapoints.Bulk{project.ID: mine, neighbour.ID: others} {
			if b != (datapoints.Bulk{}) {
				all[id] = b
			}
		}
		got, err := w.Queries.BulkByProject(t.Context())
		runtest.Must(t, err)
		same(t, step+": backlog", all, got)
	}
	of := func(items int) datapoints.Bulk { return datapoints.Bulk{Items: items, Bytes: int64(7 * items)} }
	w.revised("alone", "live", alone)
	want("a single send", of(0), of(0))
	w.batch("import", "a", "b", "c")
	want("a batch", of(3), of(0))
	w.project = neighbour.ID
	w.batch("another", "x")
	w.project = project.ID
	want("a batch of the neighbour", of(3), of(1))
	w.started("import", "a", 0, 1, 1, 0)
	want("an attempt", of(3), of(1))
	w.derived("import", "a", 0, 1)
	want("one derived", of(2), of(1))
	w.missed("import", "b", 1, 1, 5, 0, true)
	w.derived("import", "c", 2, 1)
	want("one failed", of(0), of(1))
	w.stopped("import", ingestion.ModelUnavailable)
	w.retried("import", 1)
	want("a retry", of(1), of(1))
	w.deleted("deletion", "b", true)
	want("a deletion", of(0), of(1))
	w.deleted("deletion of the neighbour", "x", true)
	want("all deleted", of(0), of(0))
}

// Only the live lane ages: an import waits for as long as it takes.
func TestWaiting_LiveLaneOnly(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.batch("import", "a", "b", "c")
	w.apply()
	got, err := w.Queries.Waiting(t.Context(), 0, 0)
	if err != nil || !got.Item.IsZero() || !got.Backlogged.IsZero() {
		t.Errorf("a batch alone: %+v, %v", got, err)
	}
	accepted := w.at()
	w.revised("alone", "d", alone)
	w.apply()
	if got, err = w.Queries.Waiting(t.Context(), 0, 0); err != nil || got.Item != accepted || got.Backlogged != accepted {
		t.Errorf("waiting %+v, %v; want the single send of %v", got, err, accepted)
	}
	counts, err := w.Queries.WaitingByProject(t.Context(), 0, 10)
	if diff := cmp.Diff(map[uuid.UUID]int{project.ID: 1}, counts); diff != "" || err != nil {
		t.Errorf("waiting by project (-want +got), %v:\n%s", err, diff)
	}
}

// Whatever lanes the revisions of a data point came by, in which order, and however pages and leases
// follow each other, they are leased one at a time and in their order, and all of them.
func TestLease_RevisionsInOrder(tt *testing.T) {
	db := pgtest.Database(tt)
	makeSchemas(tt, db)
	rapid.Check(tt, func(t *rapid.T) {
		exec(t, db, `truncate ops.leases, datapoints.items, datapoints.sends, datapoints.data_points,
			datapoints.revisions, datapoints.batches, datapoints.bulk, datapoints.readiness, datapoints.month_usage,
			datapoints.scopes`)
		w := fixtureOf(tt, db)
		type sent struct{ send, source string }
		of := map[string]sent{} // by source and revision
		sources := []string{"a", "b", "c"}
		next, last, leased := 0, map[string]int{}, map[string]work.Item{}
		lease := func(t *rapid.T) {
			lane := rapid.SampledFrom([]work.Lane{work.LaneLive, work.LaneBulk}).Draw(t, "lane")
			items, _, err := w.Queries.Lease(tt.Context(), work.LeaseRequest{
				Lane: lane, Holder: "one", Limit: 2, Now: noon, Until: noon.Add(time.Minute),
			})
			runtest.Must(t, err)
			for _, i := range items {
				for _, source := range sources {
					if id(source) != i.DataPoint {
						continue
					}
					if last[source]++; i.Revision != last[source] {
						t.Fatalf("%s: leased revision %d, want %d", source, i.Revision, last[source])
					}
					if _, twice := leased[source]; twice {
						t.Fatalf("%s is leased twice", source)
					}
					leased[source] = i
				}
			}
		}
		end := func(*rapid.T) {
			for source, i := range leased {
				w.derived(of[fmt.Sprint(source, i.Revision)].send, source, i.Ordinal, i.Revision)
			}
			w.apply()
			for source := range leased {
				w.release(source)
			}
			clear(leased)
		}
		t.Repeat(map[string]func(*rapid.T){
			"single": func(t *rapid.T) {
				source := rapid.SampledFrom(sources).Draw(t, "source")
				next++
				w.revised(fmt.Sprint("send ", next), source, alone)
				of[fmt.Sprint(source, w.states[source].Revision)] = sent{fmt.Sprint("send ", next), source}
			},
			"batch": func(*rapid.T) {
				next++
				w.batch(fmt.Sprint("send ", next), sources...)
				for _, source := range sources {
					of[fmt.Sprint(source, w.states[source].Revision)] = sent{fmt.Sprint("send ", next), source}
				}
			},
			"page":  func(*rapid.T) { w.apply() },
			"lease": lease,
			"end":   end,
		})
		end(t)
		// What is left is leased too, and live sends from the live lane alone.
		for range 2 * len(of) {
			for _, lane := range []work.Lane{work.LaneLive, work.LaneBulk} {
				for _, name := range w.leased(lane, 100) {
					source, _, _ := strings.Cut(name, " ")
					last[source]++
					if name != fmt.Sprint(source, " ", last[source]) {
						t.Fatalf("leased %s, want revision %d", name, last[source])
					}
					ordinal := max(0, strings.Index("abc", source))
					send := of[fmt.Sprint(source, last[source])].send
					if w.isAlone(send) {
						ordinal = 0
						if lane != work.LaneLive {
							t.Fatalf("%s of a single send is leased from %s", name, lane)
						}
					}
					w.derived(send, source, ordinal, last[source])
					w.apply()
					w.release(source)
				}
			}
		}
		for _, source := range sources {
			if last[source] != w.states[source].Revision {
				t.Fatalf("%s: %d of %d revisions were leased", source, last[source], w.states[source].Revision)
			}
		}
	})
}

// isAlone reports whether a send is a single one.
func (w *fixture) isAlone(send string) (single bool) {
	w.t.Helper()
	err := w.Queries.DB.QueryRow(w.t.Context(), `select not batch from datapoints.sends where id = $1`, id(send)).Scan(&single)
	runtest.Must(w.t, err)
	return single
}

func TestLease_Texts(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	label, when, big := "standup", noon.Add(-time.Hour), strings.Repeat("x", 200<<10)
	for name, body := range map[string]datapoint.Body{
		"all":          {Content: datapoint.Text{Inline: "small\x00"}, Metadata: &datapoint.Text{Inline: `{"a":1}`}},
		"bare":         {Content: datapoint.Text{Inline: "bare"}},
		"big":          {Content: datapoint.Text{Inline: big}},
		"big metadata": {Content: datapoint.Text{Inline: "small"}, Metadata: &datapoint.Text{Inline: `"` + big + `"`}},
		"blob":         {Content: datapoint.Text{Blob: &blob.Ref{Stream: "blob-1", Size: 3}}},
		"blob of metadata": {
			Content: datapoint.Text{Inline: "small"}, Metadata: &datapoint.Text{Blob: &blob.Ref{Stream: "blob-1", Size: 3}},
		},
	} {
		e := &datapoint.RevisionAccepted{
			Send: w.send(name, alone),
			States: datapoint.States{
				Effect: datapoint.State{SourceID: name, Revision: 1, LastNumber: 1, IngestionID: id(name), OccurredAt: when},
			},
			Body: body,
		}
		if name == "all" {
			e.Author, e.Effect.Label = "ana", &label
		}
		w.last = w.Append(stream.Name(stream.DataPoint, id(name)), e)
	}
	w.apply()
	items, _, err := w.Queries.Lease(t.Context(),
		work.LeaseRequest{Lane: work.LaneLive, Holder: "one", Limit: 100, Now: noon, Until: noon.Add(time.Minute)})
	if err != nil || len(items) != 6 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	got := map[uuid.UUID]*work.Text{}
	for _, i := range items {
		got[i.DataPoint] = i.Text
	}
	want := map[uuid.UUID]*work.Text{
		id("all"):          {Content: "small\x00", Metadata: []byte(`{"a":1}`), Label: "standup", Author: "ana", OccurredAt: when},
		id("bare"):         {Content: "bare", OccurredAt: when},
		id("big"):          {Content: big, OccurredAt: when},
		id("big metadata"): {Content: "small", Metadata: []byte(`"` + big + `"`), OccurredAt: when},
		id("blob"):         nil, id("blob of metadata"): nil,
	}
	same(t, "texts", want, got)
}

// One lease returns large texts of at most 4 MiB in all its windows, and every small text.
func TestLease_LargeTextsAreBounded(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	accept := func(name, text string) {
		w.last = w.Append(stream.Name(stream.DataPoint, id(name)), &datapoint.RevisionAccepted{
			Send: w.send(name, alone),
			States: datapoint.States{
				Effect: datapoint.State{SourceID: name, Revision: 1, LastNumber: 1, IngestionID: id(name), OccurredAt: noon},
			},
			Body: datapoint.Body{Content: datapoint.Text{Inline: text}},
		})
	}
	for n := range 25 {
		accept(fmt.Sprint(n), strings.Repeat("x", 220<<10))
	}
	w.project = neighbour.ID
	accept("small", "small")
	w.apply()
	// A window of ten for each of the two projects, then one of nine for the first.
	items, _, err := w.Queries.Lease(t.Context(),
		work.LeaseRequest{Lane: work.LaneLive, Holder: "one", Limit: 20, Now: noon, Until: noon.Add(time.Minute)})
	if err != nil || len(items) != 20 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	large, small := 0, 0
	for _, i := range items {
		switch {
		case i.Text == nil:
		case i.Text.Content == "small":
			small++
		default:
			large++
		}
	}
	if large != 18 || small != 1 {
		t.Errorf("%d large texts and %d small ones, want 18 and 1", large, small)
	}
}

// A later revision comes with the head of the memories: where the last ones are, or the vectors directly
// after them. Attempts are not passed.
func TestLease_MemoryHead(t *testing.T) {
	t.Parallel()
	vectors := func(w *fixture) {
		w.last = w.Append(stream.Name(stream.Memory, id("a")),
			&memory.Embedded{ProjectID: w.project, Revision: 1, Part: 1, Parts: 1})
	}
	derived := func(w *fixture) { w.derived("s1", "a", 0, 1) }
	failed := func(w *fixture) { w.missed("s1", "a", 0, 1, 1, 0, true) }
	const none = -1
	for name, tt := range map[string]struct {
		events []func(*fixture)
		want   eventstore.Revision
	}{
		"memories":                         {[]func(*fixture){derived}, 0},
		"vectors":                          {[]func(*fixture){derived, vectors, vectors}, 2},
		"an attempt before the memories":   {[]func(*fixture){func(w *fixture) { w.started("s1", "a", 0, 1, 1, 0) }, derived}, 1},
		"no memories":                      {[]func(*fixture){failed}, none},
		"no memories, vectors":             {[]func(*fixture){failed, vectors}, none},
		"an attempt after the memories":    {[]func(*fixture){derived, func(w *fixture) { w.started("s2", "a", 0, 2, 1, 0) }}, 0},
		"vectors after a later attempt":    {[]func(*fixture){derived, func(w *fixture) { w.started("s2", "a", 0, 2, 1, 0) }, vectors}, 0},
		"memories that were derived again": {[]func(*fixture){derived, derived}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.revised("s1", "a", alone)
			w.apply()
			if items := w.leaseAt(noon); len(items) != 1 || items[0].Revision != 1 || items[0].MemoryHead != nil {
				t.Fatalf("leased %+v", items)
			}
			w.revised("s2", "a", alone)
			for _, e := range tt.events {
				e(w)
				w.apply() // page by page
			}
			items := w.leaseAt(noon.Add(time.Hour))
			if len(items) != 1 || items[0].Revision != 2 {
				t.Fatalf("leased %+v", items)
			}
			got := eventstore.Revision(none)
			if items[0].MemoryHead != nil {
				got = *items[0].MemoryHead
			}
			if got != tt.want {
				t.Errorf("head %d, want %d", got, tt.want)
			}
		})
	}
}

// leaseAt leases all due items.
func (w *fixture) leaseAt(now time.Time) []work.Item {
	w.t.Helper()
	items, _, err := w.Queries.Lease(w.t.Context(),
		work.LeaseRequest{Lane: work.LaneLive, Holder: "one", Limit: 100, Now: now, Until: now.Add(time.Minute)})
	runtest.Must(w.t, err)
	return items
}
