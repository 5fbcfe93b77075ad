package storage

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/internal/runtest"
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
	n := open(t, Config{Dir: "log", FS: fs})
	c := clientOf(t, n)
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
	if got := c.read(ofAll()); len(got) != 1 {
		t.Errorf("the whole log shows %d events", len(got))
	}
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
	n := open(t, Config{Dir: "log", FS: fs})
	c := clientOf(t, n)
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

		restarted := open(t, Config{Dir: "log", FS: crashed})
		rc := clientOf(t, restarted)
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
	n := open(t, Config{Dir: "log", FS: fs})
	c := clientOf(t, n)
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
	n := open(t, Config{Dir: "log", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	c := clientOf(t, n)
	for _, name := range []string{"damaged", "$$cut"} {
		if err := n.store.db.Set(streamKey(name), []byte("no state"), pebble.Sync); err != nil {
			t.Fatal(err)
		}
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
	if got := len(c.read(ofAll())); got != 3 {
		t.Errorf("the log holds %d events", got)
	}
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
	n := open(t, Config{Dir: "log", FS: fs, ManualScavenge: true})
	c := clientOf(t, n)
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
