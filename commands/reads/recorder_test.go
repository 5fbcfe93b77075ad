package reads_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/reads"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/project"
	readrecords "github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/readlog"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

var (
	noon   = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)
	caller = auth.Principal{
		Kind: auth.ProjectKey, KeyID: uuid.New(), OrganizationID: uuid.New(),
		Project: auth.Project{ID: uuid.New(), Namespace: uuid.New(), Reads: project.ReadsKept},
	}
)

// away is a store that fails all appends while it is away.
type away struct {
	*eventstoretest.Memory

	mu   sync.Mutex
	away bool
}

func (s *away) set(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = is
}

func (s *away) Append(
	ctx context.Context, name string, at eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return eventstore.Appended{}, errors.New("the store is away")
	}
	return s.Memory.Append(ctx, name, at, events)
}

// known are the leaves of nodes.
type known struct {
	mu    sync.Mutex
	nodes map[uuid.UUID]readrecords.Shown
	looks int
	// panics lets the next look-up panic.
	panics bool
}

func (k *known) Leaves(_ context.Context, nodes []uuid.UUID) (map[uuid.UUID]readrecords.Shown, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.looks++; k.panics {
		k.panics = false
		panic("a look-up panics")
	}
	found := map[uuid.UUID]readrecords.Shown{}
	for _, id := range nodes {
		if s, is := k.nodes[id]; is {
			found[id] = s
		}
	}
	return found, nil
}

type fixture struct {
	t       *testing.T
	store   *away
	journal eventstore.Journal
	leaves  *known
	*reads.Recorder
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	codec, err := eventstore.NewCodec(domain.Catalog)
	runtest.Must(t, err)
	f := &fixture{
		t: t, store: &away{Memory: eventstoretest.NewMemory()}, leaves: &known{nodes: map[uuid.UUID]readrecords.Shown{}},
	}
	f.journal = eventstore.Journal{Store: f.store, Codec: codec, Aside: eventstore.NewSetAside(f.store, codec)}
	f.Recorder = f.recorder()
	return f
}

func (f *fixture) recorder() *reads.Recorder {
	return reads.New(reads.Config{
		Journal: f.journal, Namespaces: stream.NewNamespaces(bytes.Repeat([]byte{7}, 32)), Leaves: f.leaves,
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon },
	})
}

// run runs a recorder until the returned function is called, which appends what is left.
func (f *fixture) run(r *reads.Recorder) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			f.t.Error(err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// read opens a read of the caller, shows texts and ends it.
func (f *fixture) read(r *reads.Recorder, id uuid.UUID, texts ...readrecords.Shown) {
	f.t.Helper()
	read, err := r.Open(f.t.Context(), caller, id, noon)
	runtest.Must(f.t, err)
	read.Asked(readrecords.Recall, "ana", "what does ana drink?")
	runtest.Must(f.t, read.Show(f.t.Context(), readrecords.Recall, texts...))
	read.End(true)
}

var streamName = stream.ReadsName(caller.Project.ID, "2026-11-05")

// records reads the records of the day, whose roots it checks.
func (f *fixture) records() (list []readrecords.Record) {
	f.t.Helper()
	events, err := f.journal.ReadFrom(f.t.Context(), streamName, 0)
	runtest.Must(f.t, err)
	var rooted *readrecords.Rooted
	for _, e := range events {
		switch e := e.Event.(type) {
		case *readrecords.Rooted:
			rooted = e
		case *readrecords.Recorded:
			want, _, err := readrecords.Batch(e.OrganizationID, e.ProjectID, e.Records)
			if err != nil || rooted == nil || !bytes.Equal(want.Root, rooted.Root) || rooted.Size != len(e.Records) ||
				e.OrganizationID != caller.OrganizationID {
				f.t.Errorf("root %+v of %d records, want %+v, %v", rooted, len(e.Records), want, err)
			}
			rooted = nil
			list = append(list, e.Records...)
		}
	}
	return list
}

// eventually waits until records are in the log.
func (f *fixture) eventually(n int) []readrecords.Record {
	f.t.Helper()
	deadline := time.After(time.Minute)
	for {
		if list := f.records(); len(list) >= n {
			return list
		}
		select {
		case <-deadline:
			f.t.Fatalf("%d records after a minute, want %d", len(f.records()), n)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestRecorder_KeepsWhatWasShown(t *testing.T) {
	f := newFixture(t)
	point, node, memory := uuid.New(), uuid.New(), uuid.New()
	leaf := bytes.Repeat([]byte{9}, 32)
	f.leaves.nodes[node] = readrecords.Shown{Node: node, DataPoint: point, Revision: 3, Leaf: leaf}
	f.leaves.nodes[memory] = readrecords.Shown{
		Node: memory, DataPoint: point, Revision: 2, Leaf: leaf, Spans: []readrecords.Span{{4, 9}},
	}
	defer f.run(f.Recorder)()
	id := uuid.New()
	f.read(f.Recorder, id, readrecords.Shown{Node: node, Spans: []readrecords.Span{{1, 2}}},
		readrecords.Shown{Node: memory}, readrecords.Shown{Node: node})
	got := f.eventually(1)[0]
	question, err := stream.NewNamespaces(bytes.Repeat([]byte{7}, 32)).Question(caller.Project.ID, "what does ana drink?")
	runtest.Must(t, err)
	want := readrecords.Record{
		ID: id, At: noon, Way: readrecords.Recall, By: caller.Name(), As: stream.IdentityID(caller.Project.Namespace, "ana"),
		Question: question, Shown: []readrecords.Shown{
			{Node: node, DataPoint: point, Revision: 3, Leaf: leaf, Spans: []readrecords.Span{{1, 2}}},
			{Node: memory, DataPoint: point, Revision: 2, Leaf: leaf, Spans: []readrecords.Span{{4, 9}}},
		},
	}
	a, _ := want.Encode()
	if b, _ := got.Encode(); !bytes.Equal(a, b) {
		t.Errorf("record %s\nwant %s", b, a)
	}
}

// A text that no projection knows is recorded by its node all the same.
func TestRecorder_TextIsNotProjected(t *testing.T) {
	f := newFixture(t)
	defer f.run(f.Recorder)()
	node := uuid.New()
	f.read(f.Recorder, uuid.New(), readrecords.Shown{Node: node})
	if got := f.eventually(1)[0]; len(got.Shown) != 1 || got.Shown[0].Node != node || got.Shown[0].Leaf != nil {
		t.Errorf("record %+v", got)
	}
}

// A record whose look-up panics is appended later.
func TestRecorder_Panic(t *testing.T) {
	f := newFixture(t)
	f.leaves.panics = true
	stop := f.run(f.Recorder)
	node := uuid.New()
	f.read(f.Recorder, uuid.New(), readrecords.Shown{Node: node})
	if got := f.eventually(1)[0]; len(got.Shown) != 1 || got.Shown[0].Node != node {
		t.Errorf("record %+v", got)
	}
	stop()
	if f.leaves.panics {
		t.Error("nothing panicked")
	}
}

// Nothing is recorded of a request that was refused, of one that shows nothing and asks nothing, and of a project that
// wants no records.
func TestRecorder_NothingToRecord(t *testing.T) {
	f := newFixture(t)
	stop := f.run(f.Recorder)
	refused, err := f.Open(t.Context(), caller, uuid.New(), noon)
	runtest.Must(t, err)
	runtest.Must(t, refused.Show(t.Context(), readrecords.Node, readrecords.Shown{Node: uuid.New()}))
	refused.End(false)
	empty, err := f.Open(t.Context(), caller, uuid.New(), noon)
	runtest.Must(t, err)
	empty.End(true)
	off := caller
	off.Project.Reads = ""
	if read, err := f.Open(t.Context(), off, uuid.New(), noon); read != nil || err != nil {
		t.Errorf("read of a project without records: %v, %v", read, err)
	}
	stop()
	if list := f.records(); len(list) != 0 {
		t.Errorf("records %+v", list)
	}
	if n := f.Room().InUse(); n != 0 {
		t.Errorf("%d bytes stay reserved", n)
	}
}

// An export is several parts, none of which has more texts than one may.
func TestRecorder_Parts(t *testing.T) {
	f := newFixture(t)
	stop := f.run(f.Recorder)
	texts := make([]readrecords.Shown, 2*readlog.MaxShown+1)
	for i := range texts {
		texts[i].DataPoint = uuid.New()
	}
	id := uuid.New()
	f.read(f.Recorder, id, texts...)
	stop()
	list := f.records()
	slices.SortFunc(list, func(a, b readrecords.Record) int { return a.Part - b.Part })
	var shown []readrecords.Shown
	for n, r := range list {
		if r.ID != id || r.Part != n || len(r.Shown) > readlog.MaxShown {
			t.Errorf("part %d of %s has %d texts", r.Part, r.ID, len(r.Shown))
		}
		shown = append(shown, r.Shown...)
	}
	if len(list) != 3 || len(shown) != len(texts) || shown[len(shown)-1].DataPoint != texts[len(texts)-1].DataPoint {
		t.Errorf("%d parts with %d texts", len(list), len(shown))
	}
}

// While the log is away requests wait, and then they are refused. What was answered before is recorded once the log is
// there again.
func TestRecorder_LogIsAway(t *testing.T) {
	f := newFixture(t)
	stop := f.run(f.Recorder)
	f.store.set(true)
	first := uuid.New()
	f.read(f.Recorder, first, readrecords.Shown{Node: uuid.New()})
	var refused error
	for refused == nil {
		read, err := f.Open(t.Context(), caller, uuid.New(), noon)
		read.End(false)
		refused = err
	}
	other := caller
	other.Project.ID = uuid.New()
	read, err := f.Open(t.Context(), other, uuid.New(), noon)
	if err != nil {
		t.Errorf("another project, of which no record waits, is held up: %v", err)
	}
	read.End(false)
	if problem, is := errors.AsType[*fault.Error](refused); !is || problem.Code != fault.CodeServiceUnavailable {
		t.Fatalf("refused by %v", refused)
	}
	f.store.set(false)
	if got := f.eventually(1)[0]; got.ID != first {
		t.Errorf("record %+v", got)
	}
	f.read(f.Recorder, uuid.New(), readrecords.Shown{Node: uuid.New()})
	stop()
	if list := f.records(); len(list) != 2 {
		t.Errorf("%d records", len(list))
	}
	if n := f.Room().InUse(); n != 0 {
		t.Errorf("%d bytes stay reserved", n)
	}
}

// Several processes append to one stream, and no record is lost or doubled.
func TestRecorder_Processes(t *testing.T) {
	f := newFixture(t)
	const each = 40
	var group sync.WaitGroup
	for range 3 {
		r := f.recorder()
		stop := f.run(r)
		group.Go(func() {
			defer stop()
			for range each {
				f.read(r, uuid.New(), readrecords.Shown{Node: uuid.New()})
			}
		})
	}
	group.Wait()
	seen := map[uuid.UUID]bool{}
	for _, r := range f.records() {
		if seen[r.ID] {
			t.Errorf("record %s is doubled", r.ID)
		}
		seen[r.ID] = true
	}
	if len(seen) != 3*each {
		t.Errorf("%d records, want %d", len(seen), 3*each)
	}
}

type list []work.ReadsDay

func (l list) EndedReads(context.Context, time.Time, int) ([]work.ReadsDay, error) { return l, nil }

// At the end of their time the records leave the log, and their leaf records stay.
func TestEnder_KeepsTheLeafRecords(t *testing.T) {
	f := newFixture(t)
	stop := f.run(f.Recorder)
	f.read(f.Recorder, uuid.New(), readrecords.Shown{Node: uuid.New()})
	stop()
	events, err := f.journal.ReadFrom(t.Context(), streamName, 0)
	if err != nil || len(events) != 2 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	ender := reads.Ender{
		Streams: erasure.Streams{Journal: f.journal, Logger: slog.New(slog.DiscardHandler), Now: time.Now},
		Days:    list{{ProjectID: caller.Project.ID, OrganizationID: caller.OrganizationID, Day: "2026-11-05"}},
		Logger:  slog.New(slog.DiscardHandler), Now: time.Now,
	}
	for range 2 {
		runtest.Must(t, ender.Pass(t.Context()))
	}
	if _, _, err := f.store.ReadLast(t.Context(), streamName); !errors.Is(err, eventstore.ErrDeleted) {
		t.Errorf("the stream is there: %v", err)
	}
	kept, err := f.journal.ReadFrom(t.Context(), stream.RecordsName(streamName), 0)
	if err != nil || len(kept) != 1 {
		t.Fatalf("%d events keep records, %v", len(kept), err)
	}
	part, _ := kept[0].Event.(*audit.RecordsKept)
	for i, e := range events {
		want, err := e.Kept(caller.OrganizationID)
		if err != nil || part.Stream != streamName || part.Records[i] != want {
			t.Errorf("record %d is %+v, want %+v, %v", i, part.Records[i], want, err)
		}
	}
}

// Nothing of a source id, a name, a question or a text is in what the log holds.
func TestRecorder_HoldsNoText(t *testing.T) {
	f := newFixture(t)
	stop := f.run(f.Recorder)
	secrets := []string{"ana@acme.example", "ticket-4711", "what does she drink?", "she drinks oolong"}
	for i := range 8 {
		read, err := f.Open(t.Context(), caller, uuid.New(), noon)
		runtest.Must(t, err)
		read.Asked(readrecords.Text, secrets[0], secrets[2])
		err = read.Show(t.Context(), readrecords.Text, readrecords.Shown{
			Node: uuid.New(), DataPoint: read.Point(secrets[1]), Spans: []readrecords.Span{{0, len(secrets[3]) + i}},
		})
		runtest.Must(t, err)
		read.End(true)
	}
	stop()
	stored, err := f.store.Read(t.Context(), streamName, 0, eventstore.Forwards, 100)
	if err != nil || len(stored) == 0 {
		t.Fatalf("%d events, %v", len(stored), err)
	}
	for _, e := range stored {
		for _, secret := range secrets {
			for n := leastPart; n <= len(secret); n++ {
				for at := range len(secret) - n + 1 {
					if part := secret[at : at+n]; strings.Contains(string(e.Data)+string(e.Meta)+e.Stream, part) && !plain(part) {
						t.Fatalf("%s holds %q", e.Type, fmt.Sprint(part))
					}
				}
			}
		}
	}
}

// leastPart is so many bytes that no hash has them by chance.
const leastPart = 8

// plain reports whether a part of a text may be in an event without coming from it, as a part of a uuid.
func plain(part string) bool { return strings.Trim(part, "0123456789abcdef-") == "" }
