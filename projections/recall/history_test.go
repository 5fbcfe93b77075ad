package recall_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/memory"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	_ "github.com/annals-project/annals/internal/seedtest"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// model is the current state of the data points by the events that one projection applied.
type model struct {
	accepted map[uuid.UUID]*datapoint.RevisionAccepted
	audience map[uuid.UUID]uuid.UUID
	derived  map[uuid.UUID]*memory.Derived
	// last is the last audience of each revision while it was the newest.
	last map[uuid.UUID]map[int]uuid.UUID
}

func modelOf(facts []eventstore.DecodedEvent) model {
	w := model{
		map[uuid.UUID]*datapoint.RevisionAccepted{},
		map[uuid.UUID]uuid.UUID{},
		map[uuid.UUID]*memory.Derived{},
		map[uuid.UUID]map[int]uuid.UUID{},
	}
	gone := map[uuid.UUID]bool{}
	for _, f := range facts {
		id := stream.Owner(f.Stream)
		switch e := f.Event.(type) {
		case *datapoint.RevisionAccepted:
			if !e.Historic() {
				w.accepted[id], w.audience[id] = e, e.Effect.Audience
				if w.last[id] == nil {
					w.last[id] = map[int]uuid.UUID{}
				}
				w.last[id][e.Effect.Revision] = e.Effect.Audience
			}
		case *datapoint.Moved:
			if !e.Historic() {
				w.audience[id] = e.Effect.Audience
				w.last[id][e.Effect.Revision] = e.Effect.Audience
			}
		case *datapoint.Deleted:
			delete(w.accepted, id)
			delete(w.derived, id)
			gone[id] = true
		case *memory.Derived:
			if before := w.derived[id]; !gone[id] && (before == nil || e.Revision >= before.Revision) {
				w.derived[id] = e
			}
		}
	}
	return w
}

// claim is a claim as the viewer of a query recalls it.
type claim struct {
	id         uuid.UUID
	occurredAt time.Time
	content    string
}

// TestGate_Histories: however far each projection lags, a response holds only what the rows of the
// gate let the viewer read, whole and in its current state; and if all are at the head, it holds
// all of it.
func TestGate_Histories(t *testing.T) {
	db := pgtest.Database(t)
	log := slog.New(slog.DiscardHandler)
	points, lines := datapoints.New(nil), memories.New(nil, log)
	projectiontest.Make(t, db, points)
	projectiontest.Make(t, db, lines)
	projectiontest.Make(t, db, recallindex.New(nil, nil, nil, log))
	analyzers := domainrecall.NewAnalyzers()
	rapid.Check(t, func(r *rapid.T) {
		_, err := db.Exec(t.Context(), `do $$ declare t record; begin
			for t in select table_schema, table_name from information_schema.tables 
				where table_schema in (select annals_schema_prefix() || unnest(array['datapoints', 'memories', 'recallindex'])) loop
				execute format('truncate %I.%I', t.table_schema, t.table_name);
			end loop; end $$`)
		if err != nil {
			r.Fatal(err)
		}
		h := projectiontest.DrawHistory(r)
		index := indextest.NewMemory()
		indexer := recallindex.New(index, logTexts(h.Facts), analyzers, log)
		lag := rapid.Bool().Draw(r, "lag")
		upTo := func(name string) []eventstore.DecodedEvent {
			if !lag {
				return h.Facts
			}
			return h.Facts[:rapid.IntRange(0, len(h.Facts)).Draw(r, name)]
		}
		pointFacts, lineFacts := upTo("data points"), upTo("memories")
		projectiontest.Apply(t, db, points, pointFacts...)
		projectiontest.Apply(t, db, lines, lineFacts...)
		projectiontest.Apply(t, db, indexer, upTo("index")...)

		newest, captured := modelOf(pointFacts), modelOf(lineFacts)
		audiences := []uuid.UUID{uuid.Nil}
		projects := map[uuid.UUID]bool{}
		for id, e := range newest.accepted {
			projects[e.ProjectID] = true
			if rapid.Bool().Draw(r, "reaches") {
				audiences = append(audiences, newest.audience[id])
			}
			for _, revision := range slices.Sorted(maps.Keys(newest.last[id])) {
				if rapid.Bool().Draw(r, "reaches an older one") {
					audiences = append(audiences, newest.last[id][revision])
				}
			}
		}
		base := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		perspective := base.Add(time.Duration(rapid.IntRange(-5, 700).Draw(r, "perspective")) * time.Second)
		for project := range projects {
			q := recall.Query{
				Project: auth.Project{ID: project}, Audiences: audiences, Text: "source revision line",
				Limit:  rapid.IntRange(1, 200).Draw(r, "limit"),
				Budget: rapid.SampledFrom([]int{3, 10, 40, 32000}).Draw(r, "budget"), At: &perspective,
				Chronological: rapid.Bool().Draw(r, "chronological"),
			}
			if rapid.Bool().Draw(r, "window") {
				from := base.Add(time.Duration(rapid.IntRange(0, 60).Draw(r, "from")) * time.Second)
				q.From = &from
			}
			service := recall.New(recall.Config{
				DB: db, Index: index, Analyzers: analyzers, Projections: recalltest.Running{},
				Now: func() time.Time { return base }, Log: slog.New(slog.DiscardHandler),
			})
			page, err := service.Recall(t.Context(), q)
			if err != nil {
				r.Fatal(err)
			}
			check(r, page, q, newest, captured, !lag)
			judged, err := recall.Judge(t.Context(), db, q, base, everyPoint(h.Facts), everyMemory(h.Facts))
			if err != nil {
				r.Fatal(err)
			}
			if diff := cmp.Diff(expected(q, newest, captured), judged); diff != "" {
				r.Fatalf("gate (-want +got):\n%s", diff)
			}
		}
	})
}

// everyPoint and everyMemory are all that an index could ever have found.
func everyPoint(log []eventstore.DecodedEvent) []uuid.UUID {
	var ids []uuid.UUID
	for _, f := range log {
		if stream.Category(f.Stream) == stream.DataPoint {
			ids = append(ids, stream.Owner(f.Stream))
		}
	}
	return ids
}

func everyMemory(log []eventstore.DecodedEvent) []uuid.UUID {
	var ids []uuid.UUID
	for _, f := range log {
		if d, ok := f.Event.(*memory.Derived); ok {
			for _, m := range d.Memories {
				ids = append(ids, m.ID)
			}
		}
	}
	return ids
}

// expected is what the gate must pass of every possible candidate.
func expected(q recall.Query, newest, captured model) recall.Judged {
	judged := recall.Judged{
		Revisions: map[uuid.UUID]int{}, Within: map[uuid.UUID]bool{},
		Memories: map[uuid.UUID]*time.Time{},
	}
	for id, e := range newest.accepted {
		if readable(q, newest, id) {
			judged.Revisions[id], judged.Within[id] = e.Effect.Revision, within(q, e.Effect.OccurredAt)
		}
	}
	claims := claimsOf(q, newest, captured)
	for i, c := range claims {
		if !within(q, c.occurredAt) {
			continue
		}
		judged.Memories[c.id] = nil
		if i+1 < len(claims) {
			judged.Memories[c.id] = &claims[i+1].occurredAt
		}
	}
	return judged
}

func readable(q recall.Query, newest model, id uuid.UUID) bool {
	e := newest.accepted[id]
	return e != nil && e.ProjectID == q.Project.ID && slices.Contains(q.Audiences, newest.audience[id])
}

// readableMemories reports whether the viewer may read what was derived from a revision: of the
// newest revision, every viewer of the data point; of an older one, those who also reach its last
// audience; of an unknown one, nobody.
func readableMemories(q recall.Query, newest model, id uuid.UUID, revision int) bool {
	if !readable(q, newest, id) {
		return false
	}
	last, known := newest.last[id][revision]
	return known && (revision == newest.accepted[id].Effect.Revision || slices.Contains(q.Audiences, last))
}

func within(q recall.Query, at time.Time) bool {
	return !at.After(*q.At) && (q.From == nil || !at.Before(*q.From))
}

// claimsOf returns the claims that the viewer may read at the perspective, in the order in which they
// supersede one another: all of a history are about the same.
func claimsOf(q recall.Query, newest, captured model) []claim {
	var claims []claim
	for id := range newest.accepted {
		if d := captured.derived[id]; d != nil && readableMemories(q, newest, id, d.Revision) && !d.OccurredAt.After(*q.At) {
			for _, m := range d.Memories {
				claims = append(claims, claim{m.ID, d.OccurredAt, m.Content})
			}
		}
	}
	slices.SortFunc(claims, func(a, b claim) int {
		if c := a.occurredAt.Compare(b.occurredAt); c != 0 {
			return c
		}
		return bytes.Compare(a.id[:], b.id[:])
	})
	return claims
}

func check(r *rapid.T, page recall.Response, q recall.Query, newest, captured model, complete bool) {
	sources, shown := map[uuid.UUID]*datapoint.RevisionAccepted{}, map[uuid.UUID]bool{}
	claims := claimsOf(q, newest, captured)
	content := map[uuid.UUID]string{}
	for id, e := range newest.accepted {
		if readable(q, newest, id) && within(q, e.Effect.OccurredAt) {
			sources[datapoint.NodeID(id, e.Effect.Revision)] = e
		}
	}
	for _, c := range claims {
		if within(q, c.occurredAt) {
			content[c.id] = c.content
		}
	}
	tokens, ranks := 0, map[int]bool{}
	for n, result := range page.Results {
		if result.ID != result.Artifact.ID || shown[result.ID] || len(result.Sources) != 1 {
			r.Fatalf("result %+v", result)
		}
		shown[result.ID], ranks[result.Rank] = true, true
		tokens += domainrecall.Tokens(result.Content, result.Sources[0].Excerpts...)
		if !q.Chronological && result.Rank != n+1 || q.Chronological && n > 0 &&
			result.OccurredAt.Before(page.Results[n-1].OccurredAt) {
			r.Fatalf("result %d has rank %d", n, result.Rank)
		}
		if e := sources[result.ID]; e != nil {
			want := recall.Source{SourceID: e.Effect.SourceID, OccurredAt: e.Effect.OccurredAt, Excerpts: []string{}}
			if diff := cmp.Diff(want, result.Sources[0]); diff != "" || result.Content != e.Content.Inline ||
				result.Artifact.SupersededAt != nil {
				r.Fatalf("source %+v\n%s", result, diff)
			}
			continue
		}
		text, known := content[result.ID]
		if !known || text != result.Content || result.Artifact.Kind != memory.Claim {
			r.Fatalf("a result that may not be shown: %+v", result)
		}
		place := slices.IndexFunc(claims, func(s claim) bool { return s.id == result.ID })
		var superseded *time.Time
		if place+1 < len(claims) {
			superseded = &claims[place+1].occurredAt
		}
		if diff := cmp.Diff(superseded, result.Artifact.SupersededAt); diff != "" {
			r.Fatalf("superseded (-want +got):\n%s", diff)
		}
	}
	if tokens != page.UsedEvidenceTokens || tokens > q.Budget || len(page.Results) > q.Limit {
		r.Fatalf("%d results of %d tokens, %d are reported; limits %d, %d", len(page.Results), tokens,
			page.UsedEvidenceTokens, q.Limit, q.Budget)
	}
	for rank := 1; rank <= len(page.Results); rank++ {
		if !ranks[rank] {
			r.Fatalf("rank %d is missing", rank)
		}
	}
	if complete && q.Limit > 50 && q.Budget > 10000 {
		for id, e := range sources {
			if !shown[id] {
				r.Fatalf("%s is not found", e.Effect.SourceID)
			}
		}
	}
	if !page.AsOf.Equal(*q.At) {
		r.Fatal(fmt.Sprint("as of ", page.AsOf))
	}
}

// logTexts is a log that the index reads texts from.
type logTexts []eventstore.DecodedEvent

func (l logTexts) At(_ context.Context, name string, at eventstore.Revision) (eventstore.DecodedEvent, bool, error) {
	for _, f := range l {
		if f.Stream == name && f.Revision == at {
			return f, true, nil
		}
	}
	return eventstore.DecodedEvent{}, false, nil
}

func (logTexts) ReadBlob(_ context.Context, ref blob.Ref) ([]byte, error) {
	return nil, &eventstore.BlobError{Stream: ref.Stream, Missing: true}
}

// The least shares of pairs that must be in order: of updates by file, and of parallel facts. Only an update whose
// claim supersedes another one is put in order. With rules that ordered free texts by their time, also parallel facts,
// the least shares of updates were .98, .95, .87, .90 and .80.
const (
	leastUpdates       = 0.68
	leastUpdatesFreely = 0.18
	leastUpdatesLonger = 0.15
	leastUpdatesChats  = 0.15
	leastUpdatesNews   = 0.13
	leastParallel      = 0.99
)

// updatePairs are files of pairs of texts of which the later replaces the earlier. Each describes its format.
var updatePairs = map[string]float64{
	"testdata/updates.txt": leastUpdates, "testdata/updates_freely.txt": leastUpdatesFreely,
	"testdata/updates_longer.txt": leastUpdatesLonger, "testdata/updates_chats.txt": leastUpdatesChats,
	"testdata/updates_news.txt": leastUpdatesNews,
}

// parallelPairs is a file of pairs of texts about two things, at least as many as there are updates: a rule that orders
// updates must not order them.
const parallelPairs = "testdata/parallel.txt"

// updatePair holds two statements of one speaker on one thing.
type updatePair struct{ speaker, earlier, later, question string }

// TestUpdatePairs guards that the current text stands above the one that it replaces, with all pairs of a file in one
// project, and that a fact is first if a question asks for it, however many facts of its shape are later.
func TestUpdatePairs(t *testing.T) {
	if testing.Short() {
		t.Skip("it is about ranks, one question after the other")
	}
	t.Run("order", func(t *testing.T) {
		for file, least := range updatePairs {
			t.Run(file, func(t *testing.T) {
				t.Parallel()
				testUpdatePairs(t, readUpdatePairs(t, file), least)
			})
		}
		t.Run(parallelPairs, testParallelPairs)
	})
	updates := 0
	for file := range updatePairs {
		updates += len(readUpdatePairs(t, file))
	}
	if parallel := len(readPairs(t, parallelPairs, 5)); parallel < updates {
		t.Errorf("%d parallel pairs for %d updates", parallel, updates)
	}
}

// testParallelPairs asks for both facts of each pair.
func testParallelPairs(t *testing.T) {
	t.Parallel()
	h := recalltest.New(t, nil)
	rows := readPairs(t, parallelPairs, 5)
	var pairs []updatePair
	for _, row := range rows {
		pairs = append(pairs, updatePair{speaker: row[0], earlier: row[1], later: row[2]})
	}
	sendPairs(h, pairs)
	h.CatchUp()
	first := 0
	for i, row := range rows {
		for n := range 2 {
			q := h.Ask(row[3+n])
			q.Identity = row[0]
			page := h.Recall(q)
			place := placeOfSource(page, pairID(n, i))
			if place == 0 {
				first++
				continue
			}
			got := "nothing"
			if len(page.Results) > 0 {
				got = page.Results[0].Content
			}
			t.Logf("%s: result %d %q, first is %q", row[3+n], place, row[1+n], got)
		}
	}
	share := float64(first) / float64(2*len(rows))
	t.Logf("%d of %d facts (%.3f) are first", first, 2*len(rows), share)
	if share < leastParallel {
		t.Errorf("%.3f of the facts are first, below %.3f", share, leastParallel)
	}
}

func testUpdatePairs(t *testing.T, pairs []updatePair, least float64) {
	h := recalltest.New(t, nil)
	claims := sendPairs(h, pairs)
	h.CatchUp()
	inOrder := 0
	for i, p := range pairs {
		q := h.Ask(p.question)
		q.Identity = p.speaker
		page := h.Recall(q)
		earlier, later := placeOfSource(page, pairID(0, i)), placeOfSource(page, pairID(1, i))
		if later < earlier {
			inOrder++
			continue
		}
		t.Logf("%s: result %d %q, result %d %q; claims %v and %v", p.question, later, p.later, earlier, p.earlier,
			claims[pairID(1, i)], claims[pairID(0, i)])
	}
	share := float64(inOrder) / float64(len(pairs))
	t.Logf("%d of %d pairs (%.2f) are in order", inOrder, len(pairs), share)
	if share < least {
		t.Errorf("%.2f of the pairs are in order, below %.2f", share, least)
	}
}

// sendPairs sends all earlier texts and then all later ones. It returns what the claims of each text are about.
func sendPairs(h *recalltest.Harness, pairs []updatePair) map[string][]claimKey {
	claims := map[string][]claimKey{}
	start := time.Date(2025, 3, 1, 9, 0, 0, 0, time.UTC)
	for n := range 2 {
		for i, p := range pairs {
			claims[pairID(n, i)] = sendText(h, recalltest.DataPoint{
				ID: pairID(n, i), Content: []string{p.earlier, p.later}[n], Author: p.speaker,
				OccurredAt: start.AddDate(0, n, 0).Add(time.Duration(i) * time.Minute),
			})
		}
	}
	return claims
}

// pairID is the source id of the text n (0 or 1) of pair i.
func pairID(n, i int) string { return fmt.Sprintf("pair-%d-%d", i, n) }

// placeOfSource returns the index of the first result from a source, MaxInt if there is none.
func placeOfSource(page recall.Response, id string) int {
	at := slices.IndexFunc(page.Results, func(r recall.Result) bool { return r.Sources[0].SourceID == id })
	if at < 0 {
		return math.MaxInt
	}
	return at
}

func readUpdatePairs(t *testing.T, file string) (pairs []updatePair) {
	t.Helper()
	for _, row := range readPairs(t, file, 4) {
		pairs = append(pairs, updatePair{row[0], row[1], row[2], row[3]})
	}
	return pairs
}

// readPairs returns the fields of each line of a file.
func readPairs(t *testing.T, file string, fields int) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
			continue
		}
		row := strings.Split(line, " | ")
		if len(row) != fields {
			t.Fatalf("%q has %d fields, want %d", line, len(row), fields)
		}
		rows = append(rows, row)
	}
	return rows
}
