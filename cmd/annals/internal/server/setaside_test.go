package server

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/tenants"
)

// Whatever reads a stream passes over the events that are set aside, in every kind of stream: sends, deletions,
// records, audiences, usage and a start go on after them.
func TestServer_EveryReaderPassesOverWhatIsSetAside(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	values := h.credentials()
	own, management := values[datafolder.ProjectKeyName], values[datafolder.ManagementKeyName]
	h.useEveryStream(own, management, 1)
	h.spoilEveryStream()
	h.useEveryStream(own, management, 2)
	if status, answer := h.call("", http.MethodGet, "/readyz", nil); status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, answer)
	}
	h.stop()
	h.start()
	h.useEveryStream(own, management, 3)
}

// useEveryStream reads and writes streams of each kind.
func (h *harness) useEveryStream(own, management string, round int) {
	h.t.Helper()
	text := func(of string) string { return fmt.Sprintf("%s likes tea number %d.", of, round) }
	h.send(own, "/ingest", "completed", point{"id": "kept", "content": "Ana keeps tea.", "idempotencyKey": "once"})
	h.send(own, "/ingest", "completed", point{"id": "tea", "content": text("Ana"), "identity": "ana"})
	h.send(own, "/ingest/batch", "completed", point{"items": []point{
		{"id": "b1", "content": text("Bo")}, {"id": "b2", "content": text("Cy")},
	}})
	h.must(own, http.MethodPut, api+"/identities/ana", point{"traits": point{"team": text("blue")}}, nil)
	h.must(own, http.MethodPost, api+"/identities/bulk", []point{{"identity": "ana", "traits": point{"row": text("a")}}}, nil)
	h.must(own, http.MethodPut, api+"/audiences/team", point{"kind": "fixed", "name": text("Team"), "identities": []string{"ana"}}, nil)
	h.must(own, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, nil)
	charged := h.count("usage.charged.v1")
	if err := h.background.metering.Flush(h.t.Context()); err != nil || h.count("usage.charged.v1") == charged {
		h.t.Errorf("round %d: usage is not charged: %v", round, err)
	}
	var project struct {
		Slug string `json:"slug"`
	}
	h.must(management, http.MethodPost, api+"/projects", point{"name": fmt.Sprint("Next ", round)}, &project)
	for _, slug := range []string{project.Slug, "default"} {
		h.must(management, http.MethodPost, api+"/projects/"+slug+"/keys", point{"name": fmt.Sprint("key ", round)}, nil)
	}
	gone := h.send(own, "/ingest", "completed", point{"id": fmt.Sprint("gone ", round), "content": text("Dee")})
	h.must(own, http.MethodDelete, api+"/ingest/"+gone, nil, nil)
	if round > 1 {
		h.must(own, http.MethodDelete, fmt.Sprint(api, "/data-points/later-", round-1), nil, nil)
	}
	h.send(own, "/ingest", "completed", point{"id": fmt.Sprint("later-", round), "content": text("Eve")})
	h.changePeople(round)
	// The finisher itself would rest first, for the longer the longer its last purge took.
	if done, err := h.background.finisher.EraseNow(h.t.Context()); err != nil || done.Left.Deletions > 0 {
		h.t.Errorf("round %d: %d deletions are not erased: %v", round, done.Left.Deletions, err)
	}
}

// changePeople writes to the streams of an organization, a person and an address.
func (h *harness) changePeople(round int) {
	h.t.Helper()
	service, call := h.people()
	if round == 1 {
		acme := h.createAcme()
		_, err := service.AddMember(h.t.Context(), call, acme.ID, commands.NewMember{Email: "bo@acme.example", Role: "member"})
		if err != nil {
			h.t.Fatal(err)
		}
		h.endJoins()
		return
	}
	list := h.organizations()
	acme := list[slices.IndexFunc(list, func(o tenants.ListedOrganization) bool { return o.Name == "Acme" })]
	if err := service.SetSecondFactor(h.t.Context(), call, acme.ID, round == 2); err != nil {
		h.t.Error(err)
	}
}

// spoilEveryStream appends an event that nobody can read to each stream, and sets it aside as /readyz advises.
func (h *harness) spoilEveryStream() {
	h.t.Helper()
	kinds := map[string]int{}
	seen := map[string]bool{}
	var spoilt []eventstore.Position
	for _, e := range h.events() {
		kind := stream.Category(e.Stream)
		if e.System() || seen[e.Stream] || kind == stream.Blob {
			continue
		}
		seen[e.Stream] = true
		last, ok, err := h.storage.store.ReadLast(h.t.Context(), e.Stream)
		if err != nil || !ok {
			continue // it has ended
		}
		odd := eventstore.Proposed{ID: uuid.New(), Type: last.Type, Data: []byte(`["nobody reads this"]`), Meta: []byte(`{}`)}
		switch kinds[kind] % 3 {
		case 1:
			odd.Type, odd.Data = kind+".unheard-of.v9", []byte(`{}`)
		case 2: // of another kind of stream
			odd.Type, odd.Data, odd.Meta = "registry.log-opened.v1", []byte(`{}`), last.Meta
		}
		kinds[kind]++
		done, err := h.storage.store.Append(h.t.Context(), e.Stream, last.Revision, []eventstore.Proposed{odd})
		if err != nil {
			h.t.Fatal(err)
		}
		spoilt = append(spoilt, done.Position)
	}
	for _, kind := range []string{
		stream.Registry, stream.Organization, stream.Person, stream.Address, stream.Project, stream.Identity, stream.Bulk,
		stream.Audiences, stream.Usage, stream.DataPoint, stream.Memory, stream.Ingestion, stream.Pipeline,
	} {
		if kinds[kind] == 0 {
			h.t.Errorf("no stream of kind %s is spoilt", kind)
		}
	}
	for _, at := range spoilt {
		ask := operatorapi.SetAsideRequest{By: "test", SetAside: commands.SetAside{
			Position: at, Projection: commands.AllProjections, Reason: "nobody's", Force: true,
		}}
		if _, err := operatorapi.SetAside.Call(h.t.Context(), operatorapi.Dial(h.dir), ask); err != nil {
			h.t.Fatal(err)
		}
	}
	h.awaitApplied()
}
