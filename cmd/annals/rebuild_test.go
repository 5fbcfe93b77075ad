package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
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
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/operator"
)

// answers is what every read of the API answers. When it was asked is all that may differ.
func (h *house) answers(keys ...string) map[string]string {
	h.t.Helper()
	all := map[string]string{}
	add := func(key, method, path string, body any) {
		status, answer := h.call(key, method, path, body)
		all[fmt.Sprint(method, " ", path, " ", body, " of ", key[len(key)-4:])] = fmt.Sprintf("%d %s", status, withoutClock(h.t, answer))
	}
	management := keys[0]
	add(management, http.MethodGet, api+"/projects", nil)
	for _, key := range keys[1:] {
		for _, id := range h.sends[key] {
			add(key, http.MethodGet, api+"/ingest/"+id, nil)
		}
		for _, query := range []string{"Which editor does Ana like?", "launch", "Where does Bo live?", "secret", "tea", "the long report", "What happened in May 2025?", "nothing of this kind"} {
			for _, identity := range []string{"Ana", "bo"} {
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

// withoutClock is a body without the time of the answer.
func withoutClock(t *testing.T, body []byte) string {
	t.Helper()
	const name = `"asOf":"`
	text := string(body)
	from := strings.Index(text, name)
	if from < 0 {
		return text
	}
	length := strings.IndexByte(text[from+len(name):], '"')
	return text[:from+len(name)] + text[from+len(name)+length:]
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

// direct appends what no route of this version writes.
func (h *house) direct() {
	h.t.Helper()
	log := commands.NewLog(h.st.store, h.st.codec, h.log)
	at := now()
	to := func(name string, events ...event.Event) {
		h.t.Helper()
		last, ok, err := log.Last(h.t.Context(), name)
		if err != nil {
			h.t.Fatal(err)
		}
		expected := eventstore.NoStream
		if ok {
			expected = last.Revision
		}
		if _, err := log.Append(h.t.Context(), name, expected, event.Meta{CommandID: uuid.New(), Principal: "test"}, events...); err != nil {
			h.t.Fatal(err)
		}
	}
	for _, e := range h.events() {
		fact := h.st.codec.Fact(e)
		switch a := fact.Event.(type) {
		case *datapoint.RevisionAccepted:
			if a.Effect.SourceID == "b1" {
				to(stream.Name(stream.Memory, stream.Owner(e.Stream)), memory.Embedded{
					ProjectID: a.ProjectID, Revision: a.Effect.Revision, Model: "gone", Dims: 1, Part: 1, Parts: 1, EmbeddedAt: at,
					Vectors: []memory.Vector{{Scale: 1, Code: []byte{1}}},
				})
				moved := datapoint.Moved{Send: a.Send, Standing: datapoint.Standing{Effect: a.Effect}}
				moved.IngestionID, moved.RequestID, moved.Ordinal, moved.Items, moved.Commit, moved.AcceptedAt = uuid.New(), uuid.New(), 0, 1, 0, at
				moved.Effect.Audience = uuid.New()
				to(e.Stream, moved)
			}
		case *project.KeyCreated:
			if a.Name == "lost" {
				to(e.Stream, project.Archived{ProjectID: a.ProjectID, ArchivedAt: at}, project.Unarchived{ProjectID: a.ProjectID, UnarchivedAt: at})
			}
		}
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
	before := h.answers(management, own, other)
	same := func(when string) {
		t.Helper()
		if diff := cmp.Diff(before, h.answers(management, own, other)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", when, diff)
		}
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
	before = h.answers(management, own, other)

	t.Log("drop everything but the log")
	if _, err := h.st.db.Exec(t.Context(), `do $$ declare s text; begin for s in select nspname from pg_namespace where nspname in ('access', 'datapoints', 'memories', 'recallindex') loop
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
	if got := annals(t.Context(), nil, "", "rebuild", "all", "--data-dir", h.dir); got.code != exitOK || strings.Count(got.stdout, "rebuilt") != 4 {
		t.Fatalf("rebuild without a server: %+v", got)
	}
	h.start()
	same("rebuilt without a server")
}
