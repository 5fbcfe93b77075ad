package elastic_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/elastic"
	"github.com/annals-project/annals/projections/recallindex/elastic/elastictest"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// openOn opens an index on a real server; several may be open at once.
func openOn(t *testing.T, o elastic.Options) *elastic.Index {
	t.Helper()
	x := open(t, o)
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func apply(t *testing.T, x recallindex.Index, c recallindex.Change) {
	t.Helper()
	if err := x.Apply(t.Context(), []recallindex.Change{c}); err != nil {
		t.Fatal(err)
	}
}

// hits returns how many documents of a project have a word.
func hits(t *testing.T, x recallindex.Index, project uuid.UUID, word string, audience uuid.UUID) int {
	t.Helper()
	found, err := x.Search(t.Context(), recallindex.Query{
		Analysis: indextest.Analysis,
		Project:  project, Sources: 100, Memories: 100, Terms: recall.Wholes(word), Audiences: []uuid.UUID{audience},
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(found.Sources.Hits)
}

func passage(point uuid.UUID, revision, n int, word string) recallindex.Document {
	return recallindex.Document{
		Key: recallindex.Key{DataPoint: point, Revision: revision, N: n}, Terms: recall.Terms{Text: []string{word}},
	}
}

// An older page, of a process that lost its lease, changes nothing that a newer one wrote, moved or
// deleted.
func TestIndex_OlderPageComesLate(t *testing.T) {
	x := openOn(t, elastictest.Options(t))
	project, a, b, team := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	at := func(position eventstore.Position, c recallindex.Change) {
		t.Helper()
		c.Project, c.Position = project, position
		apply(t, x, c)
	}
	late := recallindex.Change{
		Analysis: indextest.Analysis, Upserts: []recallindex.Document{passage(a, 1, 0, "old"), passage(b, 1, 0, "plan")},
	}
	at(10, late)
	at(20, recallindex.Change{
		Analysis: indextest.Analysis,
		Deletes:  []recallindex.Scope{{DataPoint: a, Part: recallindex.Sources, Revision: 1}},
		Upserts:  []recallindex.Document{passage(a, 2, 0, "new")},
		Moves:    []recallindex.Move{{DataPoint: b, Audience: team}},
	})
	at(10, late)
	at(15, recallindex.Change{
		Analysis: indextest.Analysis,
		Deletes:  []recallindex.Scope{{DataPoint: a, Part: recallindex.Sources, Revision: 2}},
		Moves:    []recallindex.Move{{DataPoint: b}},
	})
	got := fmt.Sprint(hits(t, x, project, "old", uuid.Nil), hits(t, x, project, "new", uuid.Nil),
		hits(t, x, project, "plan", uuid.Nil), hits(t, x, project, "plan", team))
	if want := "0 1 0 1"; got != want {
		t.Errorf("hits of old, new, plan and plan of the team are %s, want %s", got, want)
	}
	at(20, recallindex.Change{Analysis: indextest.Analysis, Upserts: []recallindex.Document{passage(a, 2, 0, "newer")}})
	if n := hits(t, x, project, "newer", uuid.Nil); n != 1 {
		t.Errorf("%d hits after the same page came again, want 1", n)
	}
}

// Deletes and moves of more documents than a search returns take several rounds.
func TestIndex_ManyDocumentsOfOneDataPoint(t *testing.T) {
	x := openOn(t, elastic.WithScan(elastictest.Options(t), 7))
	project, a, team := uuid.New(), uuid.New(), uuid.New()
	change := recallindex.Change{Analysis: indextest.Analysis, Project: project, Position: 1}
	for n := range 30 {
		change.Upserts = append(change.Upserts, passage(a, 1, n, "plan"))
	}
	apply(t, x, change)
	apply(t, x, recallindex.Change{
		Analysis: indextest.Analysis,
		Project:  project, Position: 2, Moves: []recallindex.Move{{DataPoint: a, Audience: team}},
	})
	if n, old := hits(t, x, project, "plan", team), hits(t, x, project, "plan", uuid.Nil); n != 30 || old != 0 {
		t.Errorf("%d documents are moved, %d are not", n, old)
	}
	apply(t, x, recallindex.Change{
		Analysis: indextest.Analysis, Project: project, Position: 3, Deletes: []recallindex.Scope{
			{DataPoint: a, Part: recallindex.Sources, Revision: 1},
		},
	})
	if n := hits(t, x, project, "plan", team); n != 0 {
		t.Errorf("%d documents are left", n)
	}
}

// A shadow that one process promotes answers the searches of all, and another that takes over adopts
// it. The index before it is gone.
func TestIndex_PromotedByAnotherProcess(t *testing.T) {
	options := elastictest.Options(t)
	x, other := openOn(t, options), openOn(t, options)
	if x.Generation() != other.Generation() {
		t.Fatal("two processes begin two generations")
	}
	project, before := uuid.New(), x.Generation()
	apply(t, x, recallindex.Change{
		Analysis: indextest.Analysis, Project: project, Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "old")},
	})
	next, err := x.NewShadow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	apply(t, next, recallindex.Change{
		Analysis: indextest.Analysis,
		Project:  project, Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "new")},
	})
	if n := hits(t, other, project, "new", uuid.Nil); n != 0 {
		t.Errorf("%d hits of a shadow", n)
	}
	if ok, err := x.Promote(t.Context(), "elasticsearch:none/"+uuid.NewString()); ok || err != nil {
		t.Errorf("promoted what does not exist: %t, %v", ok, err)
	}
	var promotions errgroup.Group
	for range 3 {
		promotions.Go(func() error {
			ok, err := x.Promote(t.Context(), next.Generation())
			if err == nil && !ok {
				err = errors.New("the shadow is not found")
			}
			return err
		})
	}
	if err := promotions.Wait(); err != nil {
		t.Fatalf("promote: %v", err)
	}
	if n := hits(t, other, project, "new", uuid.Nil) - hits(t, other, project, "old", uuid.Nil); n != 1 {
		t.Error("the other process searches the index before")
	}
	stale := recallindex.Change{
		Analysis: indextest.Analysis, Project: project, Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "stale")},
	}
	if err := other.Apply(t.Context(), []recallindex.Change{stale}); err == nil {
		t.Error("a process writes to the index before")
	}
	if other.Generation() != before {
		t.Error("a late write replaced the generation of its process")
	}
	if ok, err := other.Promote(t.Context(), x.Generation()); !ok || err != nil || other.Generation() != x.Generation() {
		t.Errorf("adopt: %t, %v", ok, err)
	}
	if names := elastictest.Indexes(t, options); len(names) != 1 {
		t.Errorf("indexes %v are left", names)
	}
}

// A new generation answers nothing until it is published, in any process.
func TestIndex_HeldUntilPublished(t *testing.T) {
	options := elastictest.Options(t)
	options.HoldNew = true
	x, other := openOn(t, options), openOn(t, options)
	project := uuid.New()
	apply(t, x, recallindex.Change{
		Analysis: indextest.Analysis,
		Project:  project, Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "helix")},
	})
	q := recallindex.Query{
		Analysis: indextest.Analysis, Project: project, Sources: 1, Memories: 1, Terms: recall.Wholes("helix"),
	}
	for _, process := range []*elastic.Index{x, other} {
		if _, err := process.Search(t.Context(), q); !errors.Is(err, recallindex.ErrIncomplete) {
			t.Errorf("search: %v, want %v", err, recallindex.ErrIncomplete)
		}
	}
	for range 2 {
		if err := x.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := hits(t, other, project, "helix", uuid.Nil); n != 1 {
		t.Errorf("%d hits, want 1", n)
	}
}

// An index that is removed in Elasticsearch begins a new generation, by a check and by a write.
func TestIndex_RemovedInElasticsearch(t *testing.T) {
	options := elastictest.Options(t)
	x := openOn(t, options)
	change := recallindex.Change{
		Analysis: indextest.Analysis,
		Project:  uuid.New(), Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "helix")},
	}
	for name, notice := range map[string]func() error{
		"check": func() error { return x.Check(t.Context()) },
		"write": func() error {
			if err := x.Apply(t.Context(), []recallindex.Change{change}); err == nil {
				t.Error("a write to an index that is gone succeeds")
			}
			return nil
		},
	} {
		apply(t, x, change)
		before := x.Generation()
		for _, index := range elastictest.Indexes(t, options) {
			elastictest.Remove(t, options, index)
		}
		if err := notice(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if x.Generation() == before {
			t.Errorf("%s: the generation is the same", name)
		}
		if n, err := x.Count(t.Context(), change.Project); n != 0 || err != nil {
			t.Errorf("%s: %d documents, %v", name, n, err)
		}
	}
}

// A late write of a process that lost its lease is refused as long as the deleted document keeps its version.
func TestIndexDeletes_OutliveLateWrites(t *testing.T) {
	if late := projections.LeaseTime + elastic.WriteTime; elastic.GCDeletes < 4*late {
		t.Errorf("a deleted document keeps its version for %s, want much more than %s", elastic.GCDeletes, late)
	}
	if is, err := time.ParseDuration(elastic.GCDeletesSetting); err != nil || is != elastic.GCDeletes {
		t.Errorf("the setting is %s, want %s: %v", elastic.GCDeletesSetting, elastic.GCDeletes, err)
	}
	for name, empty := range map[string]bool{"an index that exists": false, "a new index": true} {
		t.Run(name, func(t *testing.T) {
			if got := settingOf(t, empty); got != elastic.GCDeletesSetting {
				t.Errorf("gc_deletes is %q, want %q", got, elastic.GCDeletesSetting)
			}
		})
	}
}

// settingOf opens an index and returns the gc_deletes that it sends to the server, which has an index
// unless it is empty.
func settingOf(t *testing.T, empty bool) (setting string) {
	t.Helper()
	s := newScripted(t, false)
	var mu sync.Mutex
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		type settings struct {
			Index struct {
				GCDeletes string `json:"gc_deletes"`
			} `json:"index"`
		}
		var sent struct {
			settings
			Settings settings `json:"settings"`
		}
		if r.Method == http.MethodPut && json.Unmarshal(body, &sent) == nil {
			mu.Lock()
			setting = sent.Index.GCDeletes + sent.Settings.Index.GCDeletes
			mu.Unlock()
		}
		if empty && (strings.HasSuffix(r.URL.Path, "/_mapping") || strings.HasSuffix(r.URL.Path, "/_alias")) {
			w.Header().Set("X-Elastic-Product", "Elasticsearch")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		s.serve(w, r)
	}))
	t.Cleanup(front.Close)
	openScripted(t, elastic.Options{URL: front.URL})
	mu.Lock()
	defer mu.Unlock()
	return setting
}

// A process that lost its lease within a page sends no further documents of it.
func TestIndexBulk_LeaseLost(t *testing.T) {
	s := newScripted(t, false)
	x := openScripted(t, elastic.Options{URL: s.URL})
	lost, tries := errors.New("lease lost"), 0
	s.bulk = func(ids []string) (int, []int) {
		tries++
		return http.StatusBadGateway, make([]int, len(ids))
	}
	ctx := projections.WithLease(t.Context(), func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if tries > 0 {
			return lost
		}
		return nil
	})
	if err := x.Apply(ctx, documents(1)); err == nil || tries != 1 {
		t.Errorf("%d requests with documents, want 1: %v", tries, err)
	}
	if err := x.Apply(ctx, documents(1)); !errors.Is(err, lost) || tries != 1 {
		t.Errorf("%d requests with documents, want 1: %v", tries, err)
	}
}
