package recall_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/fault"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/explained"
	"github.com/annals-project/annals/projections/recall/recalltest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// counting counts the searches of an index, and calls before each of them.
type counting struct {
	recallindex.Index
	searches atomic.Int64
	before   func(q recallindex.Query)
}

func (c *counting) Search(ctx context.Context, q recallindex.Query) (recallindex.Found, error) {
	c.searches.Add(1)
	if c.before != nil {
		c.before(q)
	}
	return c.Index.Search(ctx, q)
}

func TestRecall_BudgetTooSmallForAnything(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 700 {
		h.Send(recalltest.DataPoint{
			ID: fmt.Sprint(n), Content: fmt.Sprint("A note about helix, number ", n),
			OccurredAt: at(1 + n%20),
		})
	}
	h.CatchUp()
	index := &counting{Index: h.Index}
	config := h.Config()
	config.Index = index
	service := recall.New(config)
	for _, c := range []struct {
		limit, budget int
		results       int
	}{
		{200, 1, 0},      // nothing fits, however much is searched for
		{200, 80, 10},    // the first candidates fill the budget
		{200, 8000, 200}, // the first candidates fill the response
	} {
		index.searches.Store(0)
		q := h.Ask("helix")
		q.Limit, q.Budget = c.limit, c.budget
		page, err := service.Recall(t.Context(), q)
		if err != nil || len(page.Results) < c.results || index.searches.Load() != 1 {
			t.Errorf("%d tokens: %d results, %d searches, %v", c.budget, len(page.Results), index.searches.Load(), err)
		}
	}
}

// counter counts the bytes of blobs that are read.
type counter struct {
	*recalltest.Harness
	bytes, largest atomic.Int64
}

func (c *counter) ReadBlob(ctx context.Context, ref blob.Ref) ([]byte, error) {
	c.bytes.Add(ref.Size)
	c.largest.Store(max(c.largest.Load(), ref.Size))
	return c.Harness.ReadBlob(ctx, ref)
}

func metadataOf(size int) json.RawMessage {
	return json.RawMessage(`{"k":"` + strings.Repeat("<", size-8) + `"}`)
}

func TestRecall_BytesEndTheResponse(t *testing.T) {
	for _, big := range []bool{false, true} {
		size, dataPoints := 128<<10, 150
		if big {
			size, dataPoints = 1<<20, 24
		}
		h := recalltest.New(t, nil)
		for n := range dataPoints {
			h.Send(recalltest.DataPoint{
				ID: fmt.Sprint(n), Content: fmt.Sprint("helix ", n), OccurredAt: at(1 + n%20),
				Metadata: metadataOf(size), Big: big,
			})
		}
		h.CatchUp()
		blobs := &counter{Harness: h}
		config := h.Config()
		config.Blobs = blobs
		service := recall.New(config)
		answers := allowance.New(allowance.Config{Total: 64 << 20, Share: 32 << 20, Wait: time.Minute, Waiters: 8})
		hold := answers.Open(allowance.Owner{Organization: uuid.New()})
		q := h.Ask("helix")
		q.Limit = 200
		page, err := service.Recall(allowance.NewContext(t.Context(), hold), q)
		if err != nil {
			t.Fatal(err)
		}
		most := recall.ResponseBytes/size - 1 // each document takes a little more than its metadata
		sum := 0
		for _, r := range page.Results {
			if len(r.Sources[0].Metadata) != size || !strings.HasPrefix(r.Content, "helix ") {
				t.Errorf("big %t: %s has %d bytes of metadata", big, r.Content, len(r.Sources[0].Metadata))
			}
			sum += len(r.Sources[0].Metadata)
		}
		if len(page.Results) != most || page.Results[most-1].Rank != most {
			t.Errorf("big %t: %d results, want %d", big, len(page.Results), most)
		}
		if held := hold.Held(); held < int64(sum) || held > recall.ResponseBytes {
			t.Errorf("big %t: %d bytes reserved for %d", big, held, sum)
		}
		if read := blobs.bytes.Load(); big && (read < int64(sum) || read > int64(sum)+1000) || !big && read != 0 {
			t.Errorf("big %t: %d bytes of blobs read for %d", big, read, sum)
		}
		q.Limit = 3
		if page, err = service.Recall(t.Context(), q); err != nil || len(page.Results) != 3 {
			t.Errorf("big %t: %d results, %v", big, len(page.Results), err)
		}
	}
}

func TestRecall_NoMemoryForTheResponse(t *testing.T) {
	h := recalltest.New(t, nil)
	h.Send(recalltest.DataPoint{ID: "a", Content: "helix", OccurredAt: at(1), Metadata: metadataOf(100 << 10)})
	h.CatchUp()
	answers := allowance.New(allowance.Config{Total: 100 << 10, Share: 100 << 10, Wait: time.Millisecond, Waiters: 1})
	other := answers.Open(allowance.Owner{Organization: uuid.New()})
	if err := other.Reserve(t.Context(), 100<<10); err != nil {
		t.Fatal(err)
	}
	hold := answers.Open(allowance.Owner{Organization: uuid.New()})
	_, err := h.Service().Recall(allowance.NewContext(t.Context(), hold), h.Ask("helix"))
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Kind != fault.Unavailable {
		t.Errorf("error %v", err)
	}
	other.Release()
	if page, err := h.Service().Recall(allowance.NewContext(t.Context(), hold), h.Ask("helix")); err != nil ||
		len(page.Results) != 1 {
		t.Errorf("%d results, %v", len(page.Results), err)
	}
}

// Texts with unknown token counts are read only up to a limit, so that they cannot delay a recall. Passages take
// the place of the first of them.
func TestRecall_ManyTextsInBlobsThatDoNotFit(t *testing.T) {
	h := recalltest.New(t, nil)
	long := strings.Repeat("helix ", 60_000)
	h.Send(recalltest.DataPoint{ID: "long", Content: long, OccurredAt: at(1), Big: true})
	ref := blob.Ref{}
	h.CatchUp()
	if err := h.DB.QueryRow(t.Context(), `select content_blob from datapoints.revisions`).Scan(&ref); err != nil {
		t.Fatal(err)
	}
	const copies = 300
	if _, err := h.DB.Exec(t.Context(), `with copies as (select gen_random_uuid() as id, gen_random_uuid() as node from generate_series(1, $1)),
		points as (insert into datapoints.data_points (id, project_id, source_id, revision, audience, occurred_at, ingestion_id, accepted_at, position,
				size, metadata_size, content_blob, traits, stems, exact, outline, conversation)
			select c.id, project_id, c.id::text, 1, audience, occurred_at, ingestion_id, accepted_at, position,
				size, metadata_size, content_blob, traits, stems, exact, outline, conversation from datapoints.data_points, copies c)
		insert into datapoints.revisions (data_point, number, project_id, node_id, historic, content_blob, occurred_at, ingestion_id, accepted_at, audience)
			select c.id, 1, project_id, c.node, false, content_blob, occurred_at, ingestion_id, accepted_at, audience from datapoints.revisions, copies c`, copies); err != nil {
		t.Fatal(err)
	}
	rows, err := h.DB.Query(t.Context(), `select id from datapoints.data_points`)
	if err != nil {
		t.Fatal(err)
	}
	var hits []recallindex.Hit
	for rows.Next() {
		var id uuid.UUID
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		hits = append(hits, recallindex.Hit{
			Key:    recallindex.Key{DataPoint: id, Revision: 1},
			Counts: []domainrecall.Count{{Text: 1}}, Length: 10,
		})
	}
	blobs := &counter{Harness: h}
	config := h.Config()
	config.Index, config.Blobs = fixed{h.Index, hits}, blobs
	service := recall.New(config)
	q := h.Ask("helix")
	q.Budget = 32000
	page, err := service.Recall(t.Context(), q)
	if err != nil || len(page.Results) != 64 || page.UsedEvidenceTokens > q.Budget {
		t.Errorf("%d results of %d tokens, %v", len(page.Results), page.UsedEvidenceTokens, err)
	}
	if read := blobs.bytes.Load(); read == 0 || read > 64<<20 {
		t.Errorf("%d bytes of blobs read", read)
	}
}

// fixed finds the same sources for every query.
type fixed struct {
	recallindex.Index
	hits []recallindex.Hit
}

func (f fixed) Search(ctx context.Context, q recallindex.Query) (recallindex.Found, error) {
	found, err := f.Index.Search(ctx, q)
	found.Sources.Hits = f.hits
	return found, err
}

func TestRecall_OneOrganizationHoldsItsShare(t *testing.T) {
	h := recalltest.New(t, nil)
	h.Send(recalltest.DataPoint{ID: "a", Content: "helix", OccurredAt: at(1)})
	h.CatchUp()
	greedy, release, begun := "greedy helix", make(chan struct{}), make(chan struct{}, 100)
	var inside atomic.Int64
	index := &counting{Index: h.Index}
	index.before = func(q recallindex.Query) {
		if q.Terms[0].Text == "greedy" {
			inside.Add(1)
			begun <- struct{}{}
			<-release
		}
	}
	config := h.Config()
	config.Index = index
	service := recall.New(config)
	organization, share := uuid.New(), service.Share()
	var group sync.WaitGroup
	recallGreedily := func(ctx context.Context) error {
		q := h.Ask(greedy)
		q.Organization = organization
		_, err := service.Recall(ctx, q)
		return err
	}
	for range 2 * share {
		group.Go(func() {
			if err := recallGreedily(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	for range share {
		<-begun
	}
	q := h.Ask("helix")
	q.Organization = uuid.New()
	if page, err := service.Recall(t.Context(), q); err != nil || len(page.Results) != 1 {
		t.Errorf("the neighbour: %d results, %v", len(page.Results), err)
	}
	if inside.Load() != share {
		t.Errorf("%d recalls of one organization at work, want %d", inside.Load(), share)
	}
	close(release)
	group.Wait()
	if err := recallGreedily(t.Context()); err != nil {
		t.Errorf("after them: %v", err)
	}
}

// broken panics in one of the places of a recall.
type broken struct {
	recallindex.Index
	*recalltest.Harness
	at string
}

func (b broken) Search(ctx context.Context, q recallindex.Query) (recallindex.Found, error) {
	if b.at == "index" {
		panic("index")
	}
	return b.Index.Search(ctx, q)
}

func (b broken) Find(context.Context, embeddings.Query, string) *embeddings.Found { panic("meaning") }

func (b broken) ReadBlob(context.Context, blob.Ref) ([]byte, error) { panic("blob") }

func TestRecall_Panics(t *testing.T) {
	h := recalltest.New(t, nil)
	h.Send(recalltest.DataPoint{ID: "a", Content: "helix", OccurredAt: at(1), Big: true})
	h.CatchUp()
	for name, change := range map[string]func(*recall.Config){
		"index":           func(c *recall.Config) { c.Index = broken{Index: h.Index, at: "index"} },
		"semantic search": func(c *recall.Config) { c.Semantic = broken{} },
		"in the snapshot": func(c *recall.Config) { c.Blobs = broken{} },
	} {
		var memories bytes.Buffer
		config := h.Config()
		change(&config)
		config.Log = slog.New(slog.NewTextHandler(&memories, nil))
		service := recall.New(config)
		// More often than there are connections or slots: each is released.
		for range int(h.DB.Config().MaxConns) + 2 {
			_, err := service.Recall(t.Context(), h.Ask("helix"))
			if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != fault.CodeInternal {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if !bytes.Contains(memories.Bytes(), []byte("goroutine")) {
			t.Errorf("%s: no stack is logged", name)
		}
	}
	if page := h.Recall(h.Ask("helix")); len(page.Results) != 1 {
		t.Errorf("after the panics: %d results", len(page.Results))
	}
}

type failing struct{ recallindex.Index }

func (failing) Search(context.Context, recallindex.Query) (recallindex.Found, error) {
	return recallindex.Found{}, recallindex.ErrDamaged
}

func (failing) Generation() string { return "failing" }
func (failing) Analysis() int      { return 1 }

type stopped struct{}

func (stopped) Stopped(_ context.Context, name string) error {
	if name == "memories" {
		return errors.New("stopped")
	}
	return nil
}

func TestRecall_Unavailable(t *testing.T) {
	h := recalltest.New(t, failing{})
	config := h.Config()
	config.Projections = stopped{}
	services := map[string]*recall.Service{"index": h.Service(), "projection": recall.New(config)}
	for name, service := range services {
		_, err := service.Recall(t.Context(), h.Ask("helix"))
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.CodeServiceUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Service().Recall(ctx, h.Ask("helix")); err == nil {
		t.Error("a recall without a caller succeeds")
	}
}

// switching puts another generation into use before the first search.
type switching struct {
	recallindex.Index
	analysis atomic.Int64
	asked    atomic.Int64
}

func (x *switching) Analysis() int { return int(x.analysis.Load()) }

func (x *switching) Search(ctx context.Context, q recallindex.Query) (recallindex.Found, error) {
	x.asked.Add(1)
	x.analysis.Store(int64(x.Index.Analysis()))
	if q.Analysis != x.Index.Analysis() {
		return recallindex.Found{}, recallindex.ErrOtherAnalysis
	}
	return x.Index.Search(ctx, q)
}

// A query that was analysed for the generation before is analysed again, and the recall is answered. So is
// its explanation.
func TestRecall_GenerationReplaced(t *testing.T) {
	h := recalltest.New(t, indextest.NewMemory())
	h.Send(recalltest.DataPoint{ID: "one", Content: "tern", OccurredAt: at(1)})
	h.CatchUp()
	earlier := domainrecall.Analysis{Version: 1, Word: func(word string) string { return "earlier" + word }}
	config := h.Config()
	config.Analyzers = domainrecall.NewAnalyzers(earlier)
	for _, explains := range []bool{false, true} {
		x := &switching{Index: h.Index}
		x.analysis.Store(int64(earlier.Version))
		config.Index = x
		service := recall.New(config)
		results := 0
		if explains {
			e, err := explained.Explain(t.Context(), service, h.Ask("tern"), []string{"one"})
			if err != nil {
				t.Fatal(err)
			}
			results = len(e.Results)
		} else {
			page, err := service.Recall(t.Context(), h.Ask("tern"))
			if err != nil {
				t.Fatal(err)
			}
			results = len(page.Results)
		}
		if results != 1 || x.asked.Load() != 2 {
			t.Errorf("explained %t: %d results after %d searches", explains, results, x.asked.Load())
		}
	}
}

// statements counts the statements of a pool.
type statements struct{ atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.Add(1)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (*statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { s.Add(1) }

func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// The number of statements of a recall does not grow with its limit: there is none for each document.
func TestRecall_StatementsDoNotGrowWithTheLimit(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 400 {
		id := fmt.Sprint("turn/", n)
		h.Send(recalltest.DataPoint{
			ID: id, Content: fmt.Sprintf("The harbour of town %d has ropes and %d ships.", n, n%7), Author: []string{"Ana", "Ben"}[n%2],
			Metadata: json.RawMessage(`{"m":"` + strings.Repeat("m", n) + `"}`), OccurredAt: at(1).Add(time.Duration(n) * time.Minute),
		})
		h.Derive(id, 1, at(1).Add(time.Duration(n)*time.Minute), false, recalltest.Line{
			Kind: "claim", Content: fmt.Sprint("Town ", n, " has a harbour."), Excerpt: fmt.Sprint("The harbour of town ", n),
			Subject: fmt.Sprint("town ", n), Attribute: "harbour",
		})
	}
	h.CatchUp()
	counted, config := new(statements), h.Config()
	pool := config.DB.Config().Copy()
	pool.ConnConfig.Tracer = counted
	db, err := pgxpool.NewWithConfig(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	config.DB = db
	service := recall.New(config)
	of := map[int]int64{}
	for _, limit := range []int{1, 10, 100, 200} {
		q := h.Ask("Which harbour has ropes and ships?")
		q.Limit, q.Budget = limit, 32_000
		before := counted.Load()
		page, err := service.Recall(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Results) != limit {
			t.Fatalf("%d results, want %d", len(page.Results), limit)
		}
		of[limit] = counted.Load() - before
	}
	// Of a small project more candidates are looked up, which is one look-up more of each kind.
	const more = 2
	for limit, n := range of {
		if n == 0 || n > of[1]+more {
			t.Errorf("limit %d: %d statements, of limit 1 %d", limit, n, of[1])
		}
	}
}
