package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tenants"
)

// A failing disk of the log makes the service not ready, with the reason. Reads of the log still
// work.
func TestStorage_LogStopped(t *testing.T) {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			return errors.New("input/output error")
		}
		return nil
	}))
	log := slog.New(slog.DiscardHandler)
	n, err := node.Start(t.Context(), node.Config{Dir: "log", FS: fs, Logger: log})
	runtest.Must(t, err)
	cfg := nodetest.ConfigOf(n.Connection())
	cfg.Logger = log
	store, err := esdb.Open(cfg)
	runtest.Must(t, err)
	t.Cleanup(func() { runtest.Must(t, errors.Join(store.Close(), n.Close())) })
	st := &storage{node: n, store: store}
	event := []eventstore.Proposed{{ID: uuid.New(), Type: "tested.v1", Data: []byte("{}")}}
	_, err = store.Append(t.Context(), "s", eventstore.NoStream, event)
	runtest.Must(t, err)
	if reason, _ := st.logTrouble(nil); reason != "" || st.logStopped() != nil {
		t.Errorf("before: %q, %v", reason, st.logStopped())
	}
	broken.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), runtest.Timeout)
	defer cancel()
	event[0].ID = uuid.New()
	if _, err := store.Append(ctx, "s", 0, event); !errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("append: %v", err)
	}
	select {
	case <-n.Failed():
	case <-ctx.Done():
		t.Fatal("the node does not say that it failed")
	}
	reason, cause := st.logTrouble(nil)
	if reason != storeStopped || cause == nil || !strings.Contains(cause.Error(), "input/output error") {
		t.Errorf("after: %q, its cause: %v", reason, cause)
	}
	if st.logStopped() == nil {
		t.Error("writes go on")
	}
	if got, err := store.Read(t.Context(), "s", 0, eventstore.Forwards, 10); err != nil || len(got) != 1 {
		t.Errorf("read: %v, %v", got, err)
	}
	if err := (&storage{}).logStopped(); err != nil {
		t.Errorf("of a cluster: %v", err)
	}
}

// Somebody soft-deletes the stream of a data point in the event store: the next send completes, and operators read
// which stream it was, while others read that there was one.
func TestServer_StreamHidden(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	store := h.onNode()
	h.start()
	own, _ := h.keys()
	send := func(text string) { h.send(own, "/ingest", "completed", point{"content": text, "id": "tea"}) }
	send("The tea is in the red tin.")
	var name string
	for _, r := range eventstoretest.All(t, store, 0) {
		if stream.Category(r.Stream) == stream.DataPoint {
			name = r.Stream
		}
	}
	_, err := store.Append(t.Context(), "$$"+name, eventstore.NoStream, []eventstore.Proposed{
		{ID: uuid.New(), Type: eventstore.MetadataType, Data: []byte(`{"$tb":9223372036854775807}`)},
	})
	runtest.Must(t, err)
	runtest.Await(t, "the damaged stream is shown", func() bool {
		return strings.Contains(h.readyz().body, `"streamsDamaged":"somebody else`)
	})
	h.readyz().want(t, http.StatusOK).lacks(t, "streamsRestored", name)
	if text := h.remarks(true).StreamsDamaged; !strings.Contains(text, name+" hidden") {
		t.Errorf("operators read %q", text)
	}
	h.exposes("annals_streams_damaged 1")
	send("The tea is in the blue tin.")
	runtest.Await(t, "no stream is damaged", func() bool { return !strings.Contains(h.readyz().body, "streamsDamaged") })
	h.readyz().want(t, http.StatusOK, `"streamsRestored":"somebody else`).lacks(t, name)
	if text := h.remarks(true).StreamsRestored; !strings.Contains(text, name) {
		t.Errorf("operators read %q", text)
	}
}

// An ordinary user of an EventStoreDB may not read $all until the metadata of $all allows it.
func TestAwaitLog_AccessDenied(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, call grpc.ServerStream) error {
		if method, _ := grpc.MethodFromServerStream(call); strings.HasSuffix(method, "/GetSupportedMethods") {
			return status.Error(codes.Unimplemented, "not supported")
		}
		return status.Error(codes.PermissionDenied, "Access Denied")
	}))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); runtest.Must(t, <-served) })
	store := nodetest.Open(t, esdb.Config{
		ConnectionString: "esdb://" + listener.Addr().String() + "?tls=false", Logger: slog.New(slog.DiscardHandler),
	})
	err = (&storage{store: store}).awaitLog(t.Context(), slog.New(slog.DiscardHandler))
	for _, want := range []string{"ANNALS_EVENTSTORE", "Access Denied", `{"$acl":{"$r":["$admins","USER"]}}`, "$$$all"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
}

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
	h.readyz().want(t, http.StatusOK)
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
	var project struct{ Slug string }
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
		_, err := service.AddMember(h.t.Context(), call, acme.ID, people.NewMember{Email: "bo@acme.example", Role: "member"})
		runtest.Must(h.t, err)
		h.endJoins()
		return
	}
	list := h.organizations()
	acme := list[slices.IndexFunc(list, func(o tenants.ListedOrganization) bool { return o.Name == "Acme" })]
	runtest.Must(h.t, service.SetSecondFactor(h.t.Context(), call, acme.ID, round == 2))
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
		runtest.Must(h.t, err)
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
		ask := operatorapi.SetAsideRequest{By: "test", SetAside: tenancy.SetAside{
			Position: at, Projection: tenancy.AllProjections, Reason: "nobody's", Force: true,
		}}
		_, err := operatorapi.SetAside.Call(h.t.Context(), operatorapi.Dial(h.dir), ask)
		runtest.Must(h.t, err)
	}
	h.awaitApplied()
}

// countingStore counts the appends to streams and the reads of streams of some categories.
type countingStore struct {
	logStore
	categories []string

	mu    sync.Mutex
	calls map[string]int
}

func (c *countingStore) count(kind, name string) {
	category := stream.Category(name)
	if !slices.Contains(c.categories, category) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[kind+" "+category]++
}

// reset returns what was counted, and begins to count from zero.
func (c *countingStore) reset() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counted := c.calls
	c.calls = map[string]int{}
	return counted
}

func (c *countingStore) Append(
	ctx context.Context, name string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	c.count("append", name)
	return c.logStore.Append(ctx, name, expected, events)
}

func (c *countingStore) Read(
	ctx context.Context, name string, from eventstore.Revision, direction eventstore.Direction, limit int,
) ([]eventstore.Recorded, error) {
	c.count("read", name)
	return c.logStore.Read(ctx, name, from, direction, limit)
}

func (c *countingStore) ReadLast(ctx context.Context, name string) (eventstore.Recorded, bool, error) {
	c.count("read", name)
	return c.logStore.ReadLast(ctx, name)
}

// A send of a new data point makes two appends until it is completed, and reads no stream. The watermark that
// ends it ends others with it, so stream pipeline is not counted, nor what runs without sends.
func TestIngest_CallsToTheEventStore(t *testing.T) {
	unraced(t)
	for name, separate := range map[string]bool{"embedded": false, "separate": true} {
		t.Run(name, func(t *testing.T) { t.Parallel(); countCalls(t, separate) })
	}
}

func countCalls(t *testing.T, separate bool) {
	h := newHarness(t)
	c := &countingStore{calls: map[string]int{}, categories: []string{
		stream.DataPoint, stream.Memory, stream.Identity, stream.Ingestion, stream.Blob, stream.Audiences,
	}}
	h.set = func(cfg *Config) {
		cfg.wrapStore = func(s logStore) logStore { c.logStore = s; return c }
		if separate {
			cfg.EventStore = nodetest.Start(t, node.Config{Insecure: true}).Connection().ConnectionString()
		}
	}
	h.start()
	key, _ := h.keys()
	h.send(key, "/ingest", "completed", point{"id": "first", "content": "Ana likes tea.", "identity": "ana"})
	runtest.Await(t, "the directory has the author", func() bool {
		status, _ := h.call(key, http.MethodGet, api+"/identities/ana", nil)
		return status == http.StatusOK
	})
	created := map[string]int{"append datapoint": 1, "append memory": 1}
	// The append of a send that is taken for new is refused, and decided again on one read.
	changed := map[string]int{"append datapoint": 2, "append memory": 1, "read datapoint": 1}
	// Few enough that a slow machine has sent them before the finisher looks after a fan-out that takes long.
	batch := make([]point, 100)
	for i := range batch {
		batch[i] = point{"id": fmt.Sprint("item ", i), "content": "Ana likes tea.", "identity": "ana"}
	}
	for _, tt := range []struct {
		name, path string
		body       any
		want       map[string]int
	}{
		{"new", "/ingest", point{"id": "a", "content": "Ana likes tea."}, created},
		{"new, by a known author", "/ingest", point{"id": "b", "content": "Ana likes tea.", "identity": "ana"}, created},
		{
			"new, with all that is optional", "/ingest",
			point{"id": "c", "content": "Ana likes tea.", "label": "Talk", "metadata": point{"a": 1}, "audience": "project"},
			created,
		},
		{"new, long", "/ingest", point{"id": "d", "content": strings.Repeat("Ana likes tea. ", 8000)}, created},
		{"changed", "/ingest", point{"id": "a", "content": "Ana likes coffee."}, changed},
		{"changed again", "/ingest", point{"id": "a", "content": "Ana likes juice."}, changed},
		{"changed, by a known author", "/ingest", point{"id": "b", "content": "Ana likes coffee.", "identity": "ana"}, changed},
		{"changed, with stored metadata", "/ingest", point{"id": "c", "content": "Ana likes coffee."}, changed},
		{
			"sent again", "/ingest",
			point{"id": "a", "content": "Ana likes juice."},
			map[string]int{"append datapoint": 2, "read datapoint": 1},
		},
		{
			"batch", "/ingest/batch",
			point{"items": batch},
			map[string]int{
				"append datapoint": 100, "append memory": 100, "append ingestion": 2,
				"append blob": 1, "read blob": 1, // the stage, and its end
			},
		},
	} {
		c.reset()
		h.send(key, tt.path, "completed", tt.body)
		if diff := cmp.Diff(tt.want, c.reset()); diff != "" {
			t.Errorf("calls of a send that is %s (-want +got):\n%s", tt.name, diff)
		}
	}
}
