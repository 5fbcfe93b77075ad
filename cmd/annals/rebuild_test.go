package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/operator"
)

// answers is what every read of the API answers. When it was asked, and what the recalls of this very list change, is all that may differ.
func (h *house) answers(keys ...string) map[string]string {
	h.t.Helper()
	all := map[string]string{}
	add := func(key, method, path string, body any) {
		status, answer := h.call(key, method, path, body)
		all[fmt.Sprint(method, " ", path, " ", body, " of ", key[len(key)-4:])] = fmt.Sprintf("%d %s", status, h.withoutRecalls(answer))
	}
	for _, key := range keys {
		for _, path := range managementReads {
			add(key, http.MethodGet, api+path, nil)
		}
		for _, id := range h.sends[key] {
			add(key, http.MethodGet, api+"/ingest/"+id, nil)
		}
		if len(h.sends[key]) == 0 {
			continue
		}
		for _, query := range []string{"Which editor does Ana like?", "launch", "Where does Bo live?", "secret", "tea", "the long report", "What happened in May 2025?", "nothing of this kind"} {
			for _, identity := range recallers {
				for _, more := range []point{{}, {"limit": 3}, {"occurredFrom": "2025-05-01T00:00:00Z", "occurredTo": "2025-06-01T00:00:00Z"}, {"sort": "recent"}} {
					q := point{"query": query, "identity": identity, "queryTimestamp": "2026-11-21T12:00:00Z"}
					for name, value := range more {
						q[name] = value
					}
					add(key, http.MethodPost, api+"/recall", q)
				}
			}
		}
	}
	return all
}

// recallers recall in answers, and are seen by it.
var recallers = []string{"Ana", "bo", "cy"}

// managementReads are the reads of what is kept about a project and its organization, for any key.
var managementReads = []string{
	"/projects", "/usage", "/audiences", "/audiences/team", "/audiences/blue", "/audiences/gone", "/audiences/project",
	"/identities", "/identities?traitKey=team", "/identities?traitKey=team&traitValue=blue", "/identities?limit=2",
	"/identities/Ana", "/identities/bo", "/identities/cy", "/identities/dee", "/identities/again", "/identities/ghost", "/identities/row%201",
	"/identities?project=default", "/identities/dee?project=default",
}

var (
	whenAsked = regexp.MustCompile(`"asOf":"[^"]*"`)
	recalls   = regexp.MustCompile(`"recalls":\d+`)
	seen      = regexp.MustCompile(`("identity":"(?:` + strings.Join(recallers, "|") + `)","traits":\{[^}]*\},"origin":"\w+","lastSeenAt":)"[^"]*"`)
)

// withoutRecalls is a body without the time of the answer, and without what recalls change.
func (h *house) withoutRecalls(body []byte) string {
	text := whenAsked.ReplaceAllString(string(body), `"asOf":""`)
	return seen.ReplaceAllString(recalls.ReplaceAllString(text, `"recalls":0`), `$1""`)
}

// wantRecalls compares the recalls that a project is charged for with those that were answered.
func (h *house) wantRecalls(when string, keys ...string) {
	h.t.Helper()
	for _, key := range keys {
		var usage struct {
			Project struct {
				Recalls int64 `json:"recalls"`
			} `json:"project"`
		}
		h.must(key, http.MethodGet, api+"/usage", nil, &usage)
		if want := h.recalled.of(key); usage.Project.Recalls != want {
			h.t.Errorf("%s: %d recalls are counted, of %d", when, usage.Project.Recalls, want)
		}
	}
}

// walk makes the log hold every event of the catalogue.
func (h *house) walk(own, management string) (other string) {
	h.t.Helper()
	h.send(own, "/ingest", "completed", point{"id": "editor", "content": "My favourite editor is Helix. I moved the launch to 3 June 2025.", "identity": "Ana", "label": "Call", "timestamp": "2025-05-12T09:30:00+02:00", "metadata": point{"a": 1.5}})
	h.send(own, "/ingest", "completed", point{"id": "editor", "content": "My favourite editor is Zed now. The launch is on 4 June 2025.", "identity": "Ana", "idempotencyKey": "k1"})
	h.send(own, "/ingest", "completed", point{"id": "tea", "content": "I like tea.", "identity": "bo"})
	h.send(own, "/ingest", "completed", point{"id": "tea", "content": "I like tea.", "identity": "bo"})
	h.send(own, "/ingest", "completed", point{"id": "report", "content": "The long report says. " + strings.Repeat("Bo lives in Lisbon and likes green tea. ", 8000), "identity": "bo"})
	h.send(own, "/ingest/batch", "completed", point{"items": []point{{"id": "b1", "content": "Bo moved to Lisbon."}, {"id": "b2", "content": "The secret is 4711."}, {"id": "tea", "content": "I like coffee.", "identity": "bo"}}})
	failed := h.send(own, "/ingest/batch", "failed", point{"items": []point{{"id": "good", "content": "Cats sleep."}, {"id": "bad", "content": "... !!! ---"}}})
	h.must(own, http.MethodPost, api+"/ingest/"+failed+"/retry", nil, nil)
	h.eventually("the retry fails too", func() bool { return h.count("ingestion.failed.v1") == 2 })
	h.await(own, failed, "failed")
	h.send(own, "/ingest", "failed", point{"id": "worse", "content": "?!"})

	var created struct {
		Slug string `json:"slug"`
	}
	h.must(management, http.MethodPost, api+"/projects", point{"name": "Next door"}, &created)
	var key, lost struct {
		ID  string `json:"id"`
		Key string `json:"key"`
	}
	h.must(management, http.MethodPost, api+"/projects/"+created.Slug+"/keys", point{"name": "agent"}, &key)
	h.must(management, http.MethodPost, api+"/projects/"+created.Slug+"/keys", point{"name": "lost"}, &lost)
	h.must(management, http.MethodDelete, api+"/projects/"+created.Slug+"/keys/"+lost.ID, nil, nil)
	h.send(key.Key, "/ingest", "completed", point{"id": "editor", "content": "Ana uses Emacs next door.", "identity": "Ana"})
	whole := h.send(key.Key, "/ingest/batch", "completed", point{"items": []point{{"id": "x", "content": "One fish."}, {"id": "y", "content": "Two fish."}}})
	h.direct()
	h.manage(own, created.Slug)

	h.must(own, http.MethodPost, api+"/data-points/delete", point{"ids": []string{"b2", "report"}}, nil)
	h.must(own, http.MethodDelete, api+"/data-points/worse", nil, nil)
	h.must(key.Key, http.MethodDelete, api+"/ingest/"+whole, nil, nil)
	h.eventually("the deletions are cleaned", func() bool { return h.count("deletion.cleaned.v1") >= 3 })
	at := h.events()
	odd := at[slices.IndexFunc(at, func(e eventstore.Recorded) bool { return e.Type == "identity.appeared.v1" })]
	ask := operator.SetAside{Position: uint64(odd.Position), Projection: "memories", Reason: "nobody's", By: "test"}
	if _, err := h.operatorProjections.SetAside(h.t.Context(), ask); err == nil {
		h.t.Error("an event that nothing stands still at is set aside")
	}
	ask.Force = true
	for range 2 {
		if _, err := h.operatorProjections.SetAside(h.t.Context(), ask); err != nil {
			h.t.Error(err)
		}
	}
	if n := h.count("registry.event-set-aside.v1"); n != 1 {
		h.t.Errorf("%d decisions are written", n)
	}
	h.eventually("all is applied", func() bool {
		head, err := h.st.store.Head(h.t.Context())
		return err == nil && h.waiter.Wait(h.t.Context(), head, h.runtime.Names()...) == nil
	})
	return key.Key
}

// direct appends what no route of this version writes without a model.
func (h *house) direct() {
	h.t.Helper()
	log := commands.NewLog(h.st.store, h.st.codec, h.log)
	for _, e := range h.events() {
		accepted, ok := h.st.codec.Fact(e).Event.(*datapoint.RevisionAccepted)
		if !ok || accepted.Effect.SourceID != "b1" {
			continue
		}
		name := stream.Name(stream.Memory, stream.Owner(e.Stream))
		last, _, err := log.Last(h.t.Context(), name)
		if err != nil {
			h.t.Fatal(err)
		}
		project, revision := accepted.ProjectID, accepted.Effect.Revision
		if _, err := log.Append(h.t.Context(), name, last.Revision, event.Meta{CommandID: uuid.New(), Principal: "test"},
			memory.DerivationStarted{
				ProjectID: project, IngestionID: accepted.IngestionID, Revision: revision, Attempt: 1, StartedAt: now(),
			},
			memory.Embedded{
				ProjectID: project, Revision: revision, Model: "gone", Dims: 1, Part: 1, Parts: 1, EmbeddedAt: now(),
				Vectors: []memory.Vector{{Scale: 1, Code: []byte{1}}},
			},
		); err != nil {
			h.t.Fatal(err)
		}
		// A watermark has ended the send. If something is deleted before that, the send ends by an
		// event of its own, as all sends did earlier.
		name = stream.Name(stream.Ingestion, accepted.IngestionID)
		if last, _, err = log.Last(h.t.Context(), name); err != nil {
			h.t.Fatal(err)
		}
		if _, err := log.Append(h.t.Context(), name, last.Revision, event.Meta{CommandID: uuid.New(), Principal: "test"},
			ingestion.Indexed{ProjectID: project, IndexedAt: now()}); err != nil {
			h.t.Fatal(err)
		}
	}
}

// manage writes what is about organizations, projects, identities and audiences. The management key of the organization that it
// makes is kept.
func (h *house) manage(own, neighbour string) {
	h.t.Helper()
	operate := func(args ...string) string {
		h.t.Helper()
		got := annals(h.t.Context(), nil, "", append(args, "--data-dir", h.dir, "--json")...)
		if got.code != exitOK {
			h.t.Fatalf("annals %v: %+v", args, got)
		}
		return got.stdout
	}
	var acme struct {
		ManagementKey string `json:"managementKey"`
	}
	if err := json.Unmarshal([]byte(operate("org", "create", "Acme", "--plan", "payg", "--owner-email", "ana@acme.example")), &acme); err != nil {
		h.t.Fatal(err)
	}
	h.acme = acme.ManagementKey
	operate("org", "credits", "--grant", "50", "--org", "Acme")
	operate("org", "spend-cap", "1000", "--org", "Acme")
	operate("org", "plan", "flex", "--org", "Acme")
	operate("project", "caps", neighbour, "--ingestion-cap", "1000", "--credit-cap", "5000", "--org", "Annals")
	operate("project", "archive", neighbour, "--org", "Annals")
	operate("project", "unarchive", neighbour, "--org", "Annals")

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
	put("/audiences/blue", point{"kind": "rule", "rule": point{"match": "all", "conditions": []point{{"trait": "team", "operator": "is", "values": []string{"blue"}}}}})
	put("/audiences/gone", point{"kind": "fixed", "identities": []string{"cy"}})
	h.send(own, "/ingest", "completed", point{"id": "plan", "content": "The secret plan is to move to Porto in May 2025.", "audience": "team", "identity": "dee", "timestamp": "2025-05-12T09:30:00Z"})
	h.send(own, "/ingest", "completed", point{"id": "orphan", "content": "The secret of tea is time.", "audience": "gone"})
	h.send(own, "/ingest", "completed", point{"id": "b1", "content": "Bo moved to Lisbon.", "audience": "blue"})
	h.must(own, http.MethodDelete, api+"/audiences/gone", nil, nil)
	h.must(own, http.MethodPost, api+"/audiences/blue/recompute", nil, nil)
	for _, name := range []string{"ghost", "again"} {
		h.must(own, http.MethodDelete, api+"/identities/"+name, nil, nil)
	}
	put("/identities/again", point{"traits": point{"town": "Porto"}})
	h.eventually("removals are cleared", func() bool { return h.count("identity.cleared.v1") == 2 })
	h.must(own, http.MethodPost, api+"/recall", point{"query": "plan", "identity": "cy"}, nil)
	if err := h.metering.Flush(h.t.Context()); err != nil || h.count("usage.charged.v1") == 0 {
		h.t.Fatalf("recalls are not taken to the log: %v", err)
	}
}

// wantCatalogue fails where an event of the catalogue was never written. What is erased by now was written before.
func wantCatalogue(t *testing.T, types map[string]bool) {
	t.Helper()
	for _, entry := range domain.Catalog {
		if entry.New != nil && !types[entry.Name] {
			t.Errorf("the walk writes no %s", entry.Name)
		}
	}
	if !types[blob.ChunkType] {
		t.Errorf("the walk writes no %s", blob.ChunkType)
	}
}

// TestEveryAnswerIsRebuilt: the log alone holds what a client can read.
func TestEveryAnswerIsRebuilt(t *testing.T) {
	t.Parallel()
	h := &house{t: t, dir: filepath.Join(t.TempDir(), "data"), sends: map[string][]string{}}
	h.start()
	// The types are taken as they come: an erased stream is not in the log at the end.
	types, followed := map[string]bool{}, make(chan struct{})
	following, stopFollowing := context.WithCancel(t.Context())
	sub, err := h.st.store.Subscribe(following, 0)
	if err != nil {
		t.Fatal(err)
	}
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
	values, err := readCredentials(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	own, management := values[projectKeyName], values[managementKeyName]
	other := h.walk(own, management)
	stopFollowing()
	<-followed
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	wantCatalogue(t, types)
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
	}
	same("asked again")

	t.Log("rebuild while it serves")
	h.underLoad(own, func() {
		for _, name := range h.runtime.Names() {
			if err := operator.Dial(h.dir).Rebuild(t.Context(), name, func(operator.Rebuild) {}); err != nil {
				t.Errorf("rebuild %s: %v", name, err)
			}
		}
	})
	before = h.answers(management, h.acme, own, other)

	t.Log("drop everything but the log")
	if _, err := h.st.db.Exec(t.Context(), `do $$ declare s text; begin for s in select nspname from pg_namespace where nspname in ('access', 'datapoints', 'directory', 'memories', 'recallindex', 'usage') loop
		execute 'alter schema ' || s || ' rename to gone_' || s; end loop; end $$`); err != nil {
		t.Fatal(err)
	}
	h.stop()
	if err := os.RemoveAll(filepath.Join(h.dir, "recall")); err != nil {
		t.Fatal(err)
	}
	h.start()
	same("built anew by a start")
	h.stop()
	if got := annals(t.Context(), nil, "", "rebuild", "all", "--data-dir", h.dir); got.code != exitOK || strings.Count(got.stdout, "rebuilt") != 6 {
		t.Fatalf("rebuild without a server: %+v", got)
	}
	h.start()
	same("rebuilt without a server")
}
