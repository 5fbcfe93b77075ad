package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/witnesstest"
	"github.com/annals-project/annals/projections/runner"
)

// answers returns the answers of every read of the API, without the time of the answer and what
// these recalls change.
func (h *harness) answers(keys ...string) map[string]string {
	h.t.Helper()
	listed, err := json.Marshal(h.organizations())
	runtest.Must(h.t, err)
	all := map[string]string{"organizations": string(listed)}
	var mu sync.Mutex
	var calls errgroup.Group
	calls.SetLimit(int(admission.Debugging.Project)) // none waits for another one
	add := func(key, method, path string, body any) {
		calls.Go(func() error {
			status, answer := h.call(key, method, path, body)
			mu.Lock()
			defer mu.Unlock()
			all[fmt.Sprint(method, " ", path, " ", body, " of ", key[len(key)-4:])] = fmt.Sprintf("%d %s", status,
				h.withoutRecalls(answer))
			return nil
		})
	}
	for _, key := range keys {
		for _, path := range managementReads {
			add(key, http.MethodGet, api+path, nil)
		}
		for _, id := range h.sends[key] {
			add(key, http.MethodGet, api+"/ingest/"+id, nil)
			add(key, http.MethodGet, api+"/ingest/"+id+"/explain", nil)
		}
		if len(h.sends[key]) == 0 {
			continue
		}
		for _, path := range h.tracePaths(key) {
			add(key, http.MethodGet, path, nil)
		}
		for _, query := range []string{
			"Which editor does Ana like?", "launch", "Where does Bo live?", "secret",
			"tea", "the long report", "What happened in May 2025?", "nothing of this kind",
		} {
			for _, identity := range recallers {
				for _, more := range []point{
					{},
					{"limit": 3},
					{"sort": "recent"},
					{"occurredFrom": "2025-05-01T00:00:00Z", "occurredTo": "2025-06-01T00:00:00Z"},
				} {
					q := point{"query": query, "identity": identity, "queryTimestamp": "2026-11-21T12:00:00Z"}
					for name, value := range more {
						q[name] = value
					}
					add(key, http.MethodPost, api+"/recall", q)
				}
			}
		}
	}
	runtest.Must(h.t, calls.Wait())
	return all
}

// recallers are the identities that recall in answers, which changes when they were last seen.
var recallers = []string{"Ana", "bo", "cy"}

// managementReads are the reads about a project and its organization, for any key.
var managementReads = []string{
	"/projects", "/usage", "/audiences", "/audiences/team", "/audiences/blue", "/audiences/gone", "/audiences/project",
	"/identities", "/identities?traitKey=team", "/identities?traitKey=team&traitValue=blue", "/identities?limit=2",
	"/identities/Ana", "/identities/bo", "/identities/cy", "/identities/dee", "/identities/again", "/identities/ghost", "/identities/row%201",
	"/identities?project=default", "/identities/dee?project=default",
}

var (
	whenAsked = regexp.MustCompile(`"asOf":"[^"]*"`)
	// In a timeline they are those of the request log, which is not derived from the event log.
	recalls = regexp.MustCompile(`"recalls":(?:\d+|\[[^\]]*\])`)
	seen    = regexp.MustCompile(`("identity":"(?:` + strings.Join(recallers, "|") + `)","traits":\{[^}]*\},"origin":"\w+","lastSeenAt":)"[^"]*"`)
)

// withoutRecalls removes from a body the time of the answer and what recalls change. A timeline is truncated too once
// it has as many recalls as it shows.
func (h *harness) withoutRecalls(body []byte) string {
	text := whenAsked.ReplaceAllString(string(body), `"asOf":""`)
	if strings.Count(recalls.FindString(text), `"requestId"`) == limit.TraceNodes {
		text = strings.Replace(text, `"truncated":true`, `"truncated":false`, 1)
	}
	return seen.ReplaceAllString(recalls.ReplaceAllString(text, `"recalls":0`), `$1""`)
}

// wantRecalls compares the charged recalls of projects with the answered ones.
func (h *harness) wantRecalls(when string, keys ...string) {
	h.t.Helper()
	for _, key := range keys {
		var usage struct{ Project struct{ Recalls int64 } }
		h.must(key, http.MethodGet, api+"/usage", nil, &usage)
		if want := h.recalled.of(key); usage.Project.Recalls != want {
			h.t.Errorf("%s: %d recalls are counted, of %d", when, usage.Project.Recalls, want)
		}
	}
}

// walk writes every event of the catalogue to the log.
func (h *harness) walk(own, management string) (other string) {
	h.t.Helper()
	h.send(own, "/ingest", "completed", point{
		"id": "editor", "content": "My favourite editor is Helix. I moved the launch to 3 June 2025.", "identity": "Ana",
		"label": "Call", "timestamp": "2025-05-12T09:30:00+02:00", "metadata": point{"a": 1.5},
	})
	h.send(own, "/ingest", "completed", point{
		"id": "editor", "content": "My favourite editor is Zed now. The launch is on 4 June 2025.", "identity": "Ana",
		"idempotencyKey": "k1",
	})
	h.send(own, "/ingest", "completed", point{"id": "tea", "content": "I like tea.", "identity": "bo"})
	h.send(own, "/ingest", "completed", point{"id": "tea", "content": "I like tea.", "identity": "bo"})
	h.send(own, "/ingest", "completed", point{
		"id":       "report",
		"content":  "The long report says. " + strings.Repeat("Bo lives in Lisbon and likes green tea. ", 8000),
		"identity": "bo",
	})
	h.send(own, "/ingest/batch", "completed", point{"items": []point{
		{"id": "b1", "content": "Bo moved to Lisbon."},
		{"id": "b2", "content": "The secret is 4711."},
		{"id": "tea", "content": "I like coffee.", "identity": "bo"},
	}})
	failed := h.send(own, "/ingest/batch", "failed", point{"items": []point{
		{"id": "good", "content": "Cats sleep."}, {"id": "bad", "content": "... !!! ---"},
	}})
	h.must(own, http.MethodPost, api+"/ingest/"+failed+"/retry", nil, nil)
	runtest.Await(h.t, "the retry fails too", func() bool { return h.count("ingestion.failed.v1") == 2 })
	h.await(own, failed, "failed")
	h.send(own, "/ingest", "failed", point{"id": "worse", "content": "?!"})

	var created struct{ Slug string }
	h.must(management, http.MethodPost, api+"/projects", point{"name": "Next door"}, &created)
	var key, lost struct{ ID, Key string }
	h.must(management, http.MethodPost, api+"/projects/"+created.Slug+"/keys", point{"name": "agent"}, &key)
	h.must(management, http.MethodPost, api+"/projects/"+created.Slug+"/keys", point{"name": "lost"}, &lost)
	shown, err := operatorapi.RevealKey.Call(h.t.Context(), operatorapi.Dial(h.dir),
		operatorapi.TenancyRequest{Project: created.Slug, Key: lost.ID})
	if err != nil || shown.Key != lost.Key {
		h.t.Errorf("the key is revealed as %+v, %v", shown, err)
	}
	h.must(management, http.MethodDelete, api+"/projects/"+created.Slug+"/keys/"+lost.ID, nil, nil)
	next := point{"id": "editor", "content": "Ana uses Emacs next door.", "identity": "Ana"}
	h.send(key.Key, "/ingest", "completed", next)
	whole := h.send(key.Key, "/ingest/batch", "completed", point{"items": []point{
		{"id": "x", "content": "One fish."}, {"id": "y", "content": "Two fish."},
	}})
	h.direct()
	h.manage(own, created.Slug)
	h.manageAudit(own)

	h.tracePaths(own) // keeps the nodes of what is deleted now
	h.tracePaths(key.Key)
	h.must(own, http.MethodPost, api+"/data-points/delete", point{"ids": []string{"b2", "report"}}, nil)
	h.must(own, http.MethodDelete, api+"/data-points/worse", nil, nil)
	h.must(key.Key, http.MethodDelete, api+"/ingest/"+whole, nil, nil)
	h.send(key.Key, "/ingest", "completed", point{"id": "leaves", "content": "I leave.", "identity": "zoe"})
	h.erasePerson(operatorapi.PersonRequest{Target: h.target(""), Project: created.Slug, Identity: "zoe"})
	runtest.Await(h.t, "the deletions are cleaned", func() bool { return h.count("deletion.cleaned.v1") >= 3 })
	at := h.events()
	odd := at[slices.IndexFunc(at, func(e eventstore.Recorded) bool { return e.Type == "identity.appeared.v1" })]
	ask := operatorapi.SetAsideRequest{By: "test", SetAside: tenancy.SetAside{
		Position: odd.Position, Projection: "memories", Reason: "nobody's",
	}}
	if _, err := operatorapi.SetAside.Call(h.t.Context(), operatorapi.Dial(h.dir), ask); err == nil {
		h.t.Error("an event that stops no projection is set aside")
	}
	ask.Force = true
	for range 2 {
		_, err := operatorapi.SetAside.Call(h.t.Context(), operatorapi.Dial(h.dir), ask)
		runtest.Must(h.t, err)
	}
	if n := h.count("registry.event-set-aside.v1"); n != 1 {
		h.t.Errorf("%d decisions are written", n)
	}
	h.awaitApplied()
	return key.Key
}

// direct appends the events that no route writes without a model.
func (h *harness) direct() {
	h.t.Helper()
	log := engine.NewJournal(h.storage.store, h.storage.codec, h.cfg.Logger)
	for _, e := range h.events() {
		accepted, ok := h.storage.codec.DecodeRecorded(e).Event.(*datapoint.RevisionAccepted)
		if !ok || accepted.Effect.SourceID != "b1" {
			continue
		}
		name := stream.Name(stream.Memory, stream.Owner(e.Stream))
		last, _, err := log.Last(h.t.Context(), name)
		runtest.Must(h.t, err)
		project, revision := accepted.ProjectID, accepted.Effect.Revision
		_, err = log.Append(h.t.Context(), name, last.Revision, event.NewMeta("test", time.Now()),
			memory.DerivationStarted{
				ProjectID: project, IngestionID: accepted.IngestionID, Revision: revision, Attempt: 1, StartedAt: h.cfg.now(),
			},
			memory.Embedded{
				ProjectID: project, Revision: revision, Model: "gone", Dims: 1, Part: 1, Parts: 1, EmbeddedAt: h.cfg.now(),
				Vectors: []memory.Vector{{Scale: 1, Code: []byte{1}}},
			},
		)
		runtest.Must(h.t, err)
		// A watermark has ended the send. If something is deleted before that, the send ends by an
		// separate event, as all sends did earlier.
		name = stream.Name(stream.Ingestion, accepted.IngestionID)
		last, _, err = log.Last(h.t.Context(), name)
		runtest.Must(h.t, err)
		_, err = log.Append(h.t.Context(), name, last.Revision, event.NewMeta("test", time.Now()),
			ingestion.Indexed{ProjectID: project, IndexedAt: h.cfg.now()})
		runtest.Must(h.t, err)
	}
}

// manage writes the events about organizations, projects, identities and audiences. It stores the
// management key of the organization that it creates.
func (h *harness) manage(own, neighbour string) {
	h.t.Helper()
	acme := h.createAcme()
	h.acme = acme.ManagementKey
	h.managePeople(acme.ID)
	h.grant("Acme", 500)
	h.setSpendCap("Acme", new(int64(10000)))
	h.setPlan("Acme", "flex")
	h.setCaps("Annals", neighbour, new(int64(1000)), new(int64(50000)))
	h.setArchived("Annals", neighbour, true)
	h.setArchived("Annals", neighbour, false)

	put := func(path string, body any) {
		h.t.Helper()
		h.must(own, http.MethodPut, api+path, body, nil)
	}
	put("/identities/cy", point{"traits": point{"team": "blue", "town": "Lisbon"}})
	put("/identities/dee", point{"traits": point{"team": "blue"}})
	h.must(own, http.MethodPatch, api+"/identities/dee", point{"traits": point{"team": "red", "role": "lead"}}, nil)
	put("/identities/ghost", point{"traits": point{"team": "blue"}})
	put("/identities/again", point{"traits": point{"note": strings.Repeat("a big trait ", 150), "team": "blue"}})
	h.must(own, http.MethodPost, api+"/identities/bulk", []point{
		{"identity": "row 1", "traits": point{"team": "blue"}}, {"identity": "dee", "traits": point{"team": "blue", "role": "lead"}},
	}, nil)
	put("/audiences/team", point{"kind": "fixed", "name": "The team", "identities": []string{"cy", "again", "new member"}})
	rule := point{"match": "all", "conditions": []point{{"trait": "team", "operator": "is", "values": []string{"blue"}}}}
	put("/audiences/blue", point{"kind": "rule", "rule": rule})
	h.manageWebhooks(own)
	put("/audiences/gone", point{"kind": "fixed", "identities": []string{"cy"}})
	h.send(own, "/ingest", "completed", point{
		"id": "plan", "content": "The secret plan is to move to Porto in May 2025.", "audience": "team", "identity": "dee",
		"timestamp": "2025-05-12T09:30:00Z",
	})
	h.send(own, "/ingest", "completed", point{"id": "orphan", "content": "The secret of tea is time.", "audience": "gone"})
	h.send(own, "/ingest", "completed", point{"id": "b1", "content": "Bo moved to Lisbon.", "audience": "blue"})
	h.must(own, http.MethodDelete, api+"/audiences/gone", nil, nil)
	h.must(own, http.MethodPost, api+"/audiences/blue/recompute", nil, nil)
	for _, name := range []string{"ghost", "again"} {
		h.must(own, http.MethodDelete, api+"/identities/"+name, nil, nil)
	}
	put("/identities/again", point{"traits": point{"town": "Porto"}})
	runtest.Await(h.t, "removals are cleared", func() bool { return h.count("identity.cleared.v1") == 2 })
	h.must(own, http.MethodPost, api+"/recall", point{"query": "plan", "identity": "cy"}, nil)
	if err := h.background.metering.Flush(h.t.Context()); err != nil || h.count("usage.charged.v1") == 0 {
		h.t.Fatalf("recalls are not taken to the log: %v", err)
	}
}

// wantCatalogue fails for each event of the catalogue that was never written.
func wantCatalogue(t *testing.T, types map[string]bool) {
	t.Helper()
	for _, construct := range domain.Catalog {
		if name := construct().EventType(); !types[name] {
			t.Errorf("the walk writes no %s", name)
		}
	}
	if !types[blob.ChunkType] {
		t.Errorf("the walk writes no %s", blob.ChunkType)
	}
}

// TestServer_EveryAnswerIsRebuilt checks that the log alone holds everything that a client can
// read.
func TestServer_EveryAnswerIsRebuilt(t *testing.T) {
	t.Parallel()
	policy := witnesstest.Policy(t, witnesstest.New(t, "w.example/one"))
	h := newHarness(t)
	h.set = func(cfg *Config) { cfg.Audit.Policy = policy }
	h.start()
	// Collect the types as they arrive, because an erased stream is not in the log at the end.
	types, followed := map[string]bool{}, make(chan struct{})
	following, stopFollowing := context.WithCancel(t.Context())
	sub, err := h.storage.store.Subscribe(following, 0)
	runtest.Must(t, err)
	go func() {
		defer close(followed)
		for {
			e, err := sub.Next(following)
			if err != nil {
				return
			}
			types[e.Type] = true
		}
	}()
	own, management := h.keys()
	other := h.walk(own, management)
	stopFollowing()
	<-followed
	runtest.Must(t, sub.Close())
	wantCatalogue(t, types)
	if n := h.wantNoAddress("ana@acme.example", "bo@acme.example", "bo@new.example", "cy@acme.example"); n != 3 {
		t.Errorf("%d events of people hold an address, want one of the owner and two of a member", n)
	}
	if t.Failed() {
		return
	}
	before := h.answers(management, h.acme, own, other)
	same := func(when string) {
		t.Helper()
		if diff := cmp.Diff(before, h.answers(management, h.acme, own, other)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", when, diff)
		}
		h.wantRecalls(when, own, other)
		h.wantVerified(when)
	}
	same("asked again")

	t.Log("rebuild while it serves")
	h.underLoad(own, h.rebuilds)
	h.wantVerified("rebuilt under load")
	if testing.Short() {
		return // what follows happens one after the other, without load
	}
	before = h.answers(management, h.acme, own, other)

	t.Log("drop everything but the log")
	_, err = h.storage.db.Exec(t.Context(), `do $$ declare s text; begin for s in select nspname from pg_namespace 
		where nspname in (select annals_schema_prefix() || unnest(array['access', 'audit', 'datapoints', 'directory', 'memories', 'recallindex', 'trace', 'usage'])) loop
		execute 'alter schema ' || s || ' rename to gone_' || s; end loop; end $$`)
	runtest.Must(t, err)
	h.stop()
	runtest.Must(t, os.RemoveAll(filepath.Join(h.dir, "recall")))
	h.start()
	same("rebuilt by a start")
	h.stop()
	h.rebuildsOffline()
	h.start()
	same("rebuilt without a server")
}

// awaitApplied waits until every projection has applied what is stored.
func (h *harness) awaitApplied() {
	h.t.Helper()
	runtest.Await(h.t, "all is applied", func() bool {
		head, err := h.storage.store.Head(h.t.Context())
		return err == nil && h.read.waiter.Wait(h.t.Context(), head, h.read.runtime.Names()...) == nil
	})
}

// rebuildsOffline rebuilds every projection while the service is stopped.
func (h *harness) rebuildsOffline() {
	h.t.Helper()
	local, err := OpenRebuilder(h.t.Context(), h.config())
	runtest.Must(h.t, err)
	names, err := local.Projections(h.t.Context())
	if err != nil || len(names) != 10 {
		h.t.Errorf("projections %v, %v", names, err)
	}
	var mu sync.Mutex
	done := map[string]bool{}
	err = local.RebuildAll(h.t.Context(), names, runner.RebuildOptions{}, func(r runner.RebuildProgress) {
		mu.Lock()
		defer mu.Unlock()
		done[r.Projection] = done[r.Projection] || r.Done
	})
	for _, name := range names {
		if err != nil || !done[name] {
			h.t.Errorf("rebuild %s: done %v, %v", name, done[name], err)
		}
	}
	runtest.Must(h.t, local.Close())
}

// tracePaths returns the reads of every node that was ever listed for a key, also of deleted ones. The
// windows of their timelines do not depend on the clock.
func (h *harness) tracePaths(key string) []string {
	h.t.Helper()
	type group struct {
		Nodes     []struct{ ID string }
		HasMore   bool
		EndCursor *string
	}
	if h.traced == nil {
		h.traced = map[string][]string{}
	}
	paths, query := []string{}, url.Values{"first": {"20"}}
	for more := true; more; {
		path := api + "/trace/roots?" + query.Encode()
		var roots struct{ Memories, Sources group }
		h.must(key, http.MethodGet, path, nil, &roots)
		paths, more = append(paths, path), false
		for name, g := range map[string]group{"afterMemories": roots.Memories, "afterSources": roots.Sources} {
			for _, n := range g.Nodes {
				if !slices.Contains(h.traced[key], n.ID) {
					h.traced[key] = append(h.traced[key], n.ID)
				}
			}
			if more = more || g.HasMore; g.EndCursor != nil {
				query.Set(name, *g.EndCursor)
			}
		}
	}
	if h.window == "" { // the same after midnight
		to := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		h.window = "?from=" + to.AddDate(0, 0, -31).Format(time.DateOnly) + "&to=" + to.Format(time.DateOnly)
	}
	for _, id := range h.traced[key] {
		paths = append(paths, api+"/trace/nodes/"+id, api+"/trace/lineage/"+id+"?revealAll=true",
			api+"/trace/timeline/"+id+h.window)
	}
	return paths
}
