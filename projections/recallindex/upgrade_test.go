package recallindex_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/recallindex/elastic"
	"github.com/annals-project/annals/projections/recallindex/elastic/elastictest"
	"github.com/annals-project/annals/projections/runner"
)

// earlier is a made-up version of the analysis, in which every word has other terms.
var earlier = recall.Analysis{Version: 1, Word: func(word string) string { return "earlier" + word }}

// earlierRows is a made-up version of the rows.
const earlierRows = 5

// A store whose index was built by an earlier version is asked at once, by the analysis of that, and takes
// what arrives, while the new version is built next to it and after it was put into use. A search never
// fails, and never lacks a text that was applied; an end in the middle changes nothing.
func TestUpgrade(t *testing.T) {
	t.Run("bleve", func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), "recall")
		testUpgrade(t, func(analysis int) recallindex.Rebuildable {
			x, err := bleve.Open(folder, bleve.Options{Analysis: analysis})
			if err != nil {
				t.Fatal(err)
			}
			return x
		})
	})
	t.Run("elastic", func(t *testing.T) {
		options := elastictest.Options(t)
		options.HoldNew = true
		testUpgrade(t, func(analysis int) recallindex.Rebuildable {
			options := options
			options.Analysis = analysis
			x, err := elastic.Open(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			return x
		})
	})
}

func testUpgrade(t *testing.T, open func(analysis int) recallindex.Rebuildable) {
	s := &upgradedStore{
		t: t, open: open, db: pgtest.Database(t), store: eventstoretest.NewMemory(), codec: eventstoretest.Codec(t),
		logID: uuid.New(), project: uuid.New(), live: map[uuid.UUID]string{},
	}
	newest := recall.NewAnalyzer().Version()
	before := s.start(nil)
	for range 20 {
		s.send(before)
	}
	before.end()
	if before.version != earlierRows || before.index.Analysis() != earlier.Version {
		t.Fatalf("rows of version %d, analysis %d", before.version, before.index.Analysis())
	}
	for round := range 2 {
		g := newGate()
		now := s.start(g)
		<-g.reached
		s.send(now)
		s.delete(now)
		if now.index.Analysis() != earlier.Version || s.version() != earlierRows {
			t.Errorf("rows of version %d, analysis %d", s.version(), now.index.Analysis())
		}
		s.wantFound(now)
		if round == 0 {
			close(g.broken) // in the middle of the build
			now.end()
			continue
		}
		close(g.free)
		for s.version() != now.version || now.index.Analysis() != newest {
			if err := backoff.Pause(t.Context(), 10*time.Millisecond, nil); err != nil {
				t.Fatal(err)
			}
		}
		s.wantFound(now)
		s.send(now)
		s.delete(now)
		s.wantFound(now)
		now.end()
	}
}

// upgradedStore is a log with the projection of its index, and what must be found.
type upgradedStore struct {
	t       *testing.T
	open    func(analysis int) recallindex.Rebuildable
	db      *pgxpool.Pool
	store   *eventstoretest.Memory
	codec   *eventstore.Codec
	logID   uuid.UUID
	project uuid.UUID
	sent    int
	live    map[uuid.UUID]string
}

// process runs the projection, and searches all the time for what was there before it.
type process struct {
	index   recallindex.Rebuildable
	waiter  *runner.Waiter
	version int
	end     func()
}

// earlierProjector is the projector of the earlier version.
type earlierProjector struct{ *recallindex.Projector }

func (earlierProjector) Version() int { return earlierRows }

// start runs the projection of the earlier version, or of the newest with shadows that write through a gate.
func (s *upgradedStore) start(g *gate) *process {
	s.t.Helper()
	log := slog.New(slog.NewTextHandler(s.t.Output(), nil))
	analysis := 0
	if g == nil {
		analysis = earlier.Version
	}
	p := &process{index: s.open(analysis)}
	fed := recallindex.Index(p.index)
	if g != nil {
		fed = gatedIndex{p.index, g}
	}
	made := recallindex.New(fed, eventstore.Journal{Store: s.store, Codec: s.codec}, recall.NewAnalyzers(earlier), log)
	made.Continue(earlierRows)
	var projector projections.Projector = made
	if g == nil {
		projector = earlierProjector{made}
	}
	p.version = projector.Version()
	runtime, err := runner.New(runner.Config{
		DB: s.db, Store: s.store, Codec: s.codec, Logger: log, Projectors: []projections.Projector{projector},
		LogID: func(context.Context) (uuid.UUID, error) { return s.logID, nil },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	p.waiter = runtime.Waiter()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := runtime.Run(ctx); err != nil {
			s.t.Error(err)
		}
	})
	there := len(s.live)
	running.Go(func() {
		for ctx.Err() == nil && there > 1 {
			found, err := s.search(ctx, p, "fennec")
			if ctx.Err() == nil && (err != nil || len(found) < there-2) {
				s.t.Errorf("%d of %d texts found, %v", len(found), there, err)
				return
			}
		}
	})
	p.end = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := p.index.Close(); err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(p.end)
	return p
}

// search returns the data points that a search for a text finds, as recall asks.
func (s *upgradedStore) search(ctx context.Context, p *process, text string) (map[uuid.UUID]bool, error) {
	ask := func() (recallindex.Found, error) {
		analyzer := recall.NewAnalyzers(earlier).Of(p.index.Analysis())
		return p.index.Search(ctx, recallindex.Query{
			Project: s.project, Sources: 100, Terms: analyzer.Query(text), Analysis: analyzer.Version(),
			Audiences: []uuid.UUID{uuid.Nil},
		})
	}
	found, err := ask()
	if errors.Is(err, recallindex.ErrOtherAnalysis) {
		found, err = ask()
	}
	points := map[uuid.UUID]bool{}
	for _, h := range found.Sources.Hits {
		points[h.DataPoint] = true
	}
	return points, err
}

// wantFound requires that exactly the live texts are found, and each by the word that only it has.
func (s *upgradedStore) wantFound(p *process) {
	s.t.Helper()
	found, err := s.search(s.t.Context(), p, "fennec")
	if err != nil || len(found) != len(s.live) {
		s.t.Fatalf("%d of %d texts found, %v", len(found), len(s.live), err)
	}
	for id, word := range s.live {
		if found, err := s.search(s.t.Context(), p, word); err != nil || len(found) != 1 || !found[id] {
			s.t.Fatalf("%s finds %v, %v", word, found, err)
		}
	}
}

// send writes a text and waits until it is applied.
func (s *upgradedStore) send(p *process) {
	s.t.Helper()
	id, send := uuid.New(), uuid.New()
	s.sent++
	s.live[id] = "word" + strings.Repeat("x", s.sent) + "y"
	text := "The fennec says " + s.live[id]
	s.append(p, stream.Name(stream.DataPoint, id), eventstore.NoStream, &datapoint.RevisionAccepted{
		Send: datapoint.Send{
			ProjectID: s.project, IngestionID: send, Items: 1, AcceptedAt: when, RequestID: send, Bytes: int64(len(text)),
			Month: "2025-05",
		},
		States: datapoint.States{Effect: datapoint.State{
			SourceID: id.String(), Revision: 1, LastNumber: 1, OccurredAt: when, IngestionID: send,
		}},
		Body: datapoint.Body{Content: datapoint.Text{Inline: text}},
	})
}

// delete deletes one of the texts and waits until that is applied.
func (s *upgradedStore) delete(p *process) {
	s.t.Helper()
	for id := range s.live {
		delete(s.live, id)
		s.append(p, stream.Name(stream.DataPoint, id), 0,
			&datapoint.Deleted{ProjectID: s.project, DeletionID: uuid.New(), DeletedAt: when})
		return
	}
}

func (s *upgradedStore) append(p *process, name string, expected eventstore.Revision, e event.Event) {
	s.t.Helper()
	proposed, err := s.codec.EncodeAll([]event.Event{e},
		event.NewMeta("key:test", time.Now()))
	if err != nil {
		s.t.Fatal(err)
	}
	done, err := s.store.Append(s.t.Context(), name, expected, proposed)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := p.waiter.Wait(s.t.Context(), done.Position, recallindex.Name); err != nil {
		s.t.Fatal(err)
	}
}

// version returns the version of the rows.
func (s *upgradedStore) version() (version int) {
	s.t.Helper()
	if err := s.db.QueryRow(s.t.Context(), `select version from recallindex.checkpoint`).Scan(&version); err != nil {
		s.t.Fatal(err)
	}
	return version
}

// gate holds the pages of a shadow until free is closed, or fails them once broken is. reached is closed
// by the first.
type gate struct {
	once                  sync.Once
	reached, free, broken chan struct{}
}

func newGate() *gate {
	return &gate{reached: make(chan struct{}), free: make(chan struct{}), broken: make(chan struct{})}
}

// gatedIndex is an index whose shadows write through a gate.
type gatedIndex struct {
	recallindex.Rebuildable
	gate *gate
}

func (x gatedIndex) NewShadow(ctx context.Context) (recallindex.Index, error) {
	next, err := x.Rebuildable.NewShadow(ctx)
	return gatedShadow{next, x.gate}, err
}

func (x gatedIndex) ResumeShadow(ctx context.Context, generation string) (recallindex.Index, bool, error) {
	next, ok, err := x.Rebuildable.ResumeShadow(ctx, generation)
	return gatedShadow{next, x.gate}, ok, err
}

type gatedShadow struct {
	recallindex.Index
	gate *gate
}

func (x gatedShadow) Apply(ctx context.Context, changes []recallindex.Change) error {
	x.gate.once.Do(func() { close(x.gate.reached) })
	select {
	case <-x.gate.free:
		return x.Index.Apply(ctx, changes)
	case <-x.gate.broken:
		return context.Canceled
	case <-ctx.Done(): // the test has failed
		return ctx.Err()
	}
}
