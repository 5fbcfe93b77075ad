package storage

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest"
)

// gatedSync is a file system whose fsyncs call a function first.
type gatedSync struct {
	vfs.FS
	before func()
}

func (s *gatedSync) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	return gatedFile{f, s.before}, nil
}

type gatedFile struct {
	vfs.File
	before func()
}

func (f gatedFile) Sync() error {
	f.before()
	return f.File.Sync()
}

func (f gatedFile) SyncData() error {
	f.before()
	return f.File.SyncData()
}

// No answer shows an event before its fsync: no read returns it, no subscriber receives it. Its
// append, a repeat of that append, and an append that it would refuse all wait.
func TestCommit_NoAnswerBeforeFsync(t *testing.T) {
	reached, gate := make(chan struct{}, 64), make(chan struct{})
	var closed atomic.Bool
	fs := &gatedSync{FS: vfs.NewMem(), before: func() {
		if closed.Load() {
			reached <- struct{}{}
			<-gate
		}
	}}
	n, c := openClient(t, Config{Dir: "log", FS: fs})
	c.append("before", none, newEvents(1)...)
	live := c.subscribe(math.MaxUint64)

	closed.Store(true)
	sent := newEvent("{}")
	answers := make(chan string, 3)
	send := func(e event, expected Expectation) {
		go func() {
			resp, err := c.tryAppend(context.Background(), "s", expected, e)
			answers <- fmt.Sprint(resp.Revision, resp.Verdict == WrongVersion, err)
		}()
	}
	send(sent, none)
	<-reached // the event is written, and its fsync is under way
	send(sent, none)
	send(newEvent("{}"), none)
	for len(n.writer.requests) < 2 {
		runtime.Gosched()
	}
	if events, found, err := c.tryRead(ofStream("s")); found || err != nil {
		t.Errorf("the stream shows %d events, %v", len(events), err)
	}
	c.wantCount(ofAll(), 1)
	if got, _, _ := n.tail.after(1, make([]Entry, 0, 1)); len(got) != 0 {
		t.Error("subscribers hear of the event")
	}
	select {
	case a := <-answers:
		t.Errorf("answered: %s", a)
	default:
	}
	closed.Store(false)
	close(gate)
	got := map[string]int{}
	for range 3 {
		got[<-answers]++
	}
	if got["0 false <nil>"] != 2 || got["0 true <nil>"] != 1 {
		t.Errorf("answers: %v", got)
	}
	if e := live.event(); e.id != sent.id {
		t.Errorf("live: %+v", e)
	}
}

// Everything that was acknowledged or read before a crash is there after it, and each append is
// there whole or not at all. The crash is a copy of the files as a power cut could leave them, made
// during appends.
func TestCrash_AcknowledgedEventsRemain(t *testing.T) {
	const writers, perAppend = 8, 3
	fs := vfs.NewCrashableMem()
	c := clientOf(t, open(t, Config{Dir: "log", FS: fs}))
	var mu sync.Mutex
	acknowledged := map[string]int64{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			name := fmt.Sprintf("w%d", w)
			for i := int64(-1); ; i += perAppend {
				resp, err := c.tryAppend(ctx, name, at(i), newEvents(perAppend)...)
				if ctx.Err() != nil {
					return
				}
				if err != nil || !stored(resp) {
					t.Errorf("append: %v, %v", resp, err)
					return
				}
				mu.Lock()
				acknowledged[name] = i + perAppend
				mu.Unlock()
			}
		})
	}
	reads := c.subscribe(0)
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 8 {
		seen := uint64(0)
		for range 200 {
			seen = reads.event().position
		}
		mu.Lock()
		want := map[string]int64{}
		for name, revision := range acknowledged {
			want[name] = revision
		}
		mu.Unlock()
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50}[round%2], RNG: rng})

		restarted, rc := openClient(t, Config{Dir: "log", FS: crashed})
		for name, revision := range want {
			events := rc.read(ofStream(name))
			if int64(len(events)) <= revision {
				t.Errorf("round %d: %s has %d events, revision %d was acknowledged", round, name, len(events), revision)
			}
			if len(events)%perAppend != 0 {
				t.Errorf("round %d: %s has half an append: %d events", round, name, len(events))
			}
		}
		if head := restarted.Head(); head < seen {
			t.Errorf("round %d: position %d was read, the log ends at %d", round, seen, head)
		}
		for name := range want { // the log goes on
			rc.append(name, existing, newEvents(1)...)
			break
		}
	}
	cancel()
	wg.Wait()
}

// Concurrent appends share fsyncs, and each gets a separate answer.
func TestCommit_Group(t *testing.T) {
	const callers, each = 32, 40
	fs := &gatedSync{FS: vfs.NewMem(), before: func() { // gives way to the callers that wait, as an fsync of a disk does
		for range 2000 {
			runtime.Gosched()
		}
	}}
	n, c := openClient(t, Config{Dir: "log", FS: fs})
	var wg sync.WaitGroup
	var mu sync.Mutex
	positions := map[uint64]string{}
	won := 0
	for w := range callers {
		wg.Go(func() {
			for i := range each {
				name := fmt.Sprintf("w%d", w)
				resp, err := c.tryAppend(context.Background(), name, at(int64(i)-1), newEvents(1)...)
				if err != nil || !stored(resp) || resp.Revision != int64(i) {
					t.Errorf("append %d to %s: %v, %v", i, name, resp, err)
					return
				}
				contested, err := c.tryAppend(context.Background(), fmt.Sprintf("contested-%d", i), none, newEvents(1)...)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				p := resp.Position
				if other, taken := positions[p]; taken {
					t.Errorf("position %d went to %s and %s", p, other, name)
				}
				positions[p] = name
				if stored(contested) {
					won++
				} else if contested.Revision == NoStream {
					t.Error("lost a race against nobody")
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if won != each {
		t.Errorf("%d of %d contested streams were created", won, each)
	}
	s := n.Stats()
	if s.Events != callers*each+each || s.Appends != s.Events {
		t.Errorf("stats: %+v", s)
	}
	if s.Fsyncs*2 > s.Appends {
		t.Errorf("%d fsyncs for %d appends", s.Fsyncs, s.Appends)
	}
	if got := len(c.read(ofAll())); got != int(s.Events) {
		t.Errorf("the log holds %d events, want %d", got, s.Events)
	}
}

// A stream whose state cannot be read fails only its own calls.
func TestDamage_OfOneStream(t *testing.T) {
	n, c := openClient(t, Config{Dir: "log", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	for _, name := range []string{"damaged", "$$cut"} {
		runtest.Must(t, n.store.db.Set(streamKey(name), []byte("no state"), pebble.Sync))
	}
	c.append("cut", none, newEvents(1)...)
	if _, err := c.tryAppend(runtest.Context(t), "damaged", anyRevision, newEvents(1)...); err == nil {
		t.Errorf("append: %v", err)
	}
	if _, err := c.tryDelete("cut", at(0)); err == nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := c.tryDelete("damaged", anyRevision); err == nil {
		t.Errorf("delete: %v", err)
	}
	c.append("cut", at(0), newEvents(1)...)
	c.append("sound", none, newEvents(1)...)
	if _, _, err := c.tryRead(ofStream("damaged")); err == nil {
		t.Errorf("read: %v", err)
	}
	c.wantCount(ofAll(), 3)
}

// A delete and the append that shows the stream again may be committed one right after the other:
// the append keeps the metadata that the delete wrote, and the log is the same.
func TestCommit_WrittenRightAfterDelete(t *testing.T) {
	reached, gate := make(chan struct{}, 64), make(chan struct{})
	var closed atomic.Bool
	fs := &gatedSync{FS: vfs.NewMem(), before: func() {
		if closed.Load() {
			reached <- struct{}{}
			<-gate
		}
	}}
	n, c := openClient(t, Config{Dir: "log", FS: fs, ManualScavenge: true})
	c.append("s", none, newEvents(2)...)
	closed.Store(true)
	ctx := runtest.Context(t)
	meta := metadataEvent(fmt.Sprintf(`{"owner":"x","$tb":%d}`, int64(softDeleted)))
	requests := []*Request{
		{Stream: "other", Expected: none, Events: proposals("other", newEvents(1)...)},
		{Stream: "$$s", Expected: none, Events: proposals("$$s", meta)},
		{Stream: "s", Expected: anyRevision, Events: proposals("s", newEvents(2)...)},
		{Kind: KindDelete, Stream: "s", Expected: at(3)},
		{Stream: "s", Expected: none, Events: proposals("s", newEvents(1)...)},
	}
	for i, r := range requests {
		runtest.Must(t, n.Submit(ctx, r))
		if i == 0 {
			<-reached // its fsync is under way: the others are decided together
		}
	}
	closed.Store(false)
	close(gate)
	for i, r := range requests {
		if d, err := n.Await(ctx, r); err != nil || d.Verdict != Written {
			t.Fatalf("%d: %+v, %v", i, d, err)
		}
	}
	var got []string
	for _, e := range c.read(ofAll())[2:] {
		got = append(got, fmt.Sprintf("%s@%d", e.stream, e.revision))
		if IsMeta(e.stream) {
			got[len(got)-1] += " " + e.data
		}
	}
	want := []string{
		"other@0", `$$s@0 {"owner":"x","$tb":9223372036854775807}`, "s@2", "s@3", `$$s@1 {"owner":"x","$tb":2}`,
		`$$s@2 {"$tb":9223372036854775807}`, "s@4", `$$s@3 {"$tb":4}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func proposals(stream string, events ...event) (out []Proposed) {
	for _, e := range events {
		out = append(out, Propose(stream, e.id, e.typ, !e.raw, []byte(e.data), nil))
	}
	return out
}

func TestCommitDelay_SingleCaller(t *testing.T) {
	var g commitDelay
	for range 100 {
		if d := g.wait(1, 0); d != 0 {
			t.Fatalf("waits for %s", d)
		}
		g.record(1, 0, time.Second)
	}
}

func TestCommitDelay_ManyCallers(t *testing.T) {
	var g commitDelay
	for range 100 {
		g.record(4, 4, 300*time.Microsecond)
	}
	for _, c := range []struct {
		size  int
		since time.Duration
		want  time.Duration
	}{
		{1, 0, 300 * time.Microsecond},
		{7, 100 * time.Microsecond, 200 * time.Microsecond},
		{8, 0, 0},
		{20, 0, 0},
	} {
		if got := g.wait(c.size, c.since); got != c.want {
			t.Errorf("a group of %d waits for %s, want %s", c.size, got, c.want)
		}
	}
	// However slow the disk is: nobody waits long for others.
	g.record(4, 4, time.Minute)
	if got := g.wait(1, 0); got != maxCommitDelay {
		t.Errorf("waits for %s, want %s", got, maxCommitDelay)
	}
	if got := g.wait(1, 2*maxCommitDelay); got > 0 {
		t.Errorf("waits for %s after its time", got)
	}
	// Once the others are gone, so is the wait.
	for range 20 {
		g.record(1, 0, time.Millisecond)
	}
	if got := g.wait(1, 0); got != 0 {
		t.Errorf("waits for %s when alone again", got)
	}
}

func TestCommitDelay_NodeCloses(t *testing.T) {
	w := &writer{
		requests: make(chan *Request, 1),
		stop:     make(chan struct{}),
		delay:    commitDelay{concurrency: 10, fsync: maxCommitDelay},
	}
	r := &Request{}
	w.requests <- r
	if got := w.next(time.Now()); got != r {
		t.Errorf("got %v, want the request that waits", got)
	}
	if got := w.next(time.Now()); got != nil { // nobody comes
		t.Errorf("got %v", got)
	}
	close(w.stop)
	if got := w.next(time.Now()); got != nil {
		t.Errorf("got %v after the end", got)
	}
}

// What is known is the newest events, at least half of the limit and at most the limit, by their
// first places.
func TestRecentIDs_Eviction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(2, 12).Draw(t, "limit")
		l := newRecentIDs(limit)
		var order []recentKey // by age
		first := map[recentKey]recentEvent{}
		for i := range rapid.IntRange(0, 60).Draw(t, "events") {
			key := recentKey{
				id:       uuid.UUID{byte(rapid.IntRange(1, 9).Draw(t, "id"))},
				streamID: rapid.Uint64Range(1, 3).Draw(t, "stream"),
			}
			place := recentEvent{revision: int64(i), position: uint64(i + 1)}
			if _, known := l.find(key.id, key.streamID); !known {
				order = slices.DeleteFunc(order, func(k recentKey) bool { return k == key })
				order, first[key] = append(order, key), place
			}
			l.add(key.id, key.streamID, place)
			held := 0
			for _, key := range order {
				got, known := l.find(key.id, key.streamID)
				switch {
				case known && got != first[key]:
					t.Fatalf("%v: place %v, want the first one, %v", key, got, first[key])
				case known:
					held++
				case held > 0:
					t.Fatalf("%v was evicted before an older one", key)
				}
			}
			if held > limit || held < min(limit/2, len(order)) {
				t.Fatalf("%d of %d are known, the limit is %d", held, len(order), limit)
			}
		}
	})
}

// repeatModel is a log of appends, as plain slices and maps.
type repeatModel struct {
	head    uint64
	streams map[string][]recentPlace
	first   map[string]map[uuid.UUID]Decision // the first place of an id in each stream, since the start
}

type recentPlace struct {
	id       uuid.UUID
	position uint64
}

func (m *repeatModel) append(stream string, expected Expectation, ids []uuid.UUID) Decision {
	d := m.decide(stream, expected, ids)
	if d.Verdict != Written {
		return d
	}
	for _, id := range ids {
		m.head++
		d.Revision, d.Position = int64(len(m.streams[stream])), m.head
		m.streams[stream] = append(m.streams[stream], recentPlace{id, m.head})
		if m.first[stream] == nil {
			m.first[stream] = map[uuid.UUID]Decision{}
		}
		if _, known := m.first[stream][id]; !known {
			m.first[stream][id] = Decision{Verdict: Repeated, Revision: d.Revision, Position: d.Position}
		}
	}
	return d
}

func (m *repeatModel) decide(stream string, expected Expectation, ids []uuid.UUID) Decision {
	events := m.streams[stream]
	last := int64(len(events)) - 1
	wrong := Decision{Verdict: WrongVersion, Revision: last}
	if expected.Kind == ExpectExact {
		if expected.Revision == last {
			return Decision{Verdict: Written}
		}
		var d Decision
		for i, id := range ids {
			revision := expected.Revision + 1 + int64(i)
			if revision > last || events[revision].id != id {
				return wrong
			}
			d = Decision{Verdict: Repeated, Revision: revision, Position: events[revision].position}
		}
		return d
	}
	if expected.Kind == ExpectExists && last < 0 {
		return wrong
	}
	var d Decision
	for i, id := range ids {
		place, known := m.first[stream][id]
		switch {
		case known:
			d = place
		case i == 0:
			return Decision{Verdict: Written}
		default:
			return wrong
		}
	}
	return d
}

// Appends of new, known and repeated ids to several streams, at every kind of revision, get the
// answers of the model, whether each is committed by itself or many in one group. A restart forgets
// what only memory knows.
func TestAppend_RepeatsAgainstModel(t *testing.T) {
	pool := make([]uuid.UUID, 8)
	for i := range pool {
		pool[i] = uuid.UUID{byte(i + 1)}
	}
	rapid.Check(t, func(t *rapid.T) {
		cfg := memoryConfig()
		c := clientOf(t, open(t, cfg))
		m := &repeatModel{streams: map[string][]recentPlace{}, first: map[string]map[uuid.UUID]Decision{}}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				var requests []*Request
				var want []Decision
				for i := range rapid.IntRange(1, 5).Draw(t, "at once") {
					stream := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "stream")
					ids := rapid.SliceOfN(rapid.SampledFrom(pool), 1, 4).Draw(t, "ids")
					if rapid.Bool().Draw(t, "one id") {
						for i := range ids {
							ids[i] = ids[0]
						}
					}
					last := int64(len(m.streams[stream])) - 1
					r := &Request{Stream: stream, Expected: rapid.SampledFrom([]Expectation{
						anyRevision, anyRevision, existing, none, at(last), at(last - int64(len(ids))), at(last + 1),
					}).Draw(t, fmt.Sprint("expected by ", i))}
					r.Expected.Revision = max(r.Expected.Revision, NoStream)
					for _, id := range ids {
						r.Events = append(r.Events, Propose(stream, id, "tested", false, nil, nil))
					}
					requests, want = append(requests, r), append(want, m.append(stream, r.Expected, ids))
				}
				for _, r := range requests {
					runtest.Must(t, c.e.Submit(runtest.Context(t), r))
				}
				for i, r := range requests {
					got, err := c.e.Await(runtest.Context(t), r)
					if diff := cmp.Diff(want[i], got, cmp.AllowUnexported(Decision{})); err != nil || diff != "" {
						t.Fatalf("%d: append to %s at %v: %v, %s", i, r.Stream, r.Expected, err, diff)
					}
				}
			},
			"restart": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "seldom") > 0 {
					t.Skip("nothing would ever be recent")
				}
				runtest.Must(t, c.e.Close())
				c.e = open(t, cfg)
				m.first = map[string]map[uuid.UUID]Decision{}
			},
			"": func(t *rapid.T) {
				var got []recentPlace
				events, _, err := c.tryRead(ofStream("a"))
				runtest.Must(t, err)
				for _, e := range events {
					got = append(got, recentPlace{e.id, e.position})
				}
				if diff := cmp.Diff(m.streams["a"], got, cmp.AllowUnexported(recentPlace{})); diff != "" {
					t.Fatal(diff)
				}
			},
		})
	})
}
