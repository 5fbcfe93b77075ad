package node

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

// pair is a node and the model of it, to which the same is done.
type pair struct {
	t     *rapid.T // of the whole check
	model *model
	cfg   Config
	node  *Node
	c     client
	dirs  int
}

var modelNames = []string{"a", "b", "ab"}

// The node answers as the model does, for random operations in random order: appends at every kind
// of revision with new and repeated ids, reads of streams and of the whole log in both directions,
// filters, deletions, tombstones, metadata, the passing of time, scavenges, starts, crashes,
// backups and restores. ANNALS_NODE_STEPS makes it longer.
func TestNode_AgainstModel(t *testing.T) {
	rounds := 1
	if text := os.Getenv("ANNALS_NODE_STEPS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		runtest.Must(t, err)
	}
	for range rounds {
		rapid.Check(t, func(rt *rapid.T) {
			now := time.Unix(1_700_000_000, 0).UTC()
			p := &pair{t: rt, model: newModel(now)}
			var clock atomic.Int64 // the node looks at it whenever it likes
			clock.Store(now.UnixNano())
			p.cfg = Config{
				Dir:            "log",
				FS:             vfs.NewCrashableMem(),
				manualScavenge: true,
				now:            func() time.Time { return time.Unix(0, clock.Load()).UTC() },
				memtable:       256 << 10,
			}
			p.start()
			rt.Repeat(map[string]func(*rapid.T){
				"append": p.append, "append again": p.appendAgain, "metadata": p.describe, "delete": p.delete, "tombstone": p.tombstone,
				"time passes": func(t *rapid.T) {
					p.model.now = p.model.now.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "seconds")) * time.Second)
					clock.Store(p.model.now.UnixNano())
				},
				"scavenge": p.scavenge, "restart": p.restart, "crash": p.crash, "restore": p.restore,
				"read a stretch": p.readStretch, "read the log": p.readLog, "filter": p.filter,
				"": p.check,
			})
		})
	}
}

func (p *pair) start() {
	p.node = startNode(p.t, p.cfg)
	p.c = dial(p.t, p.node)
}

func (p *pair) name(t *rapid.T) string { return rapid.SampledFrom(modelNames).Draw(t, "stream") }

// expectation draws one that often holds, and every other kind.
func (p *pair) expectation(t *rapid.T, name string) storage.Expectation {
	return drawExpectation(t, p.model.stream(name).last())
}

func drawExpectation(t *rapid.T, last int64) storage.Expectation {
	return rapid.OneOf(rapid.Just(at(last)), rapid.Just(at(last)), rapid.Just(anyRevision), rapid.Just(existing),
		rapid.Just(none), rapid.Map(rapid.Int64Range(0, 6), at)).
		Draw(t, "expected")
}

func (p *pair) append(t *rapid.T) {
	name := p.name(t)
	p.appended(t, name, p.expectation(t, name), newEvents(rapid.IntRange(1, 4).Draw(t, "events")))
}

// appendAgain sends ids that are in the log, or a mixture.
func (p *pair) appendAgain(t *rapid.T) {
	name := p.name(t)
	s := p.model.stream(name)
	if len(s.events) == 0 {
		t.Skip("nothing was written yet")
	}
	first := rapid.Int64Range(0, s.last()).Draw(t, "first")
	count := rapid.Int64Range(1, s.last()-first+1).Draw(t, "count")
	var events []event
	for _, e := range s.events[first : first+count] {
		events = append(events, event{id: e.id, typ: e.typ, data: e.data})
	}
	if rapid.IntRange(0, 3).Draw(t, "mixed") == 0 {
		events = append(events, newEvent("{}"))
	}
	if rapid.IntRange(0, 3).Draw(t, "twice") == 0 {
		events = append(events, events[0])
	}
	if rapid.IntRange(0, 3).Draw(t, "to any stream") == 0 {
		name = p.name(t)
	}
	expected := rapid.OneOf(
		rapid.Just(at(first-1)), rapid.Just(at(first-1)), rapid.Just(anyRevision), rapid.Just(existing),
	).Draw(t, "expected")
	p.appended(t, name, expected, events)
}

func (p *pair) describe(t *rapid.T) {
	name := p.name(t)
	data := rapid.SampledFrom([]string{
		`{}`, `{"$maxCount":2}`, `{"$maxCount":1}`, `{"$maxAge":10}`, `{"$maxAge":25,"$maxCount":3}`, `{"note":"x"}`,
		`{"$maxCount":"x"}`, `{"b":1e2, "$tb":9223372036854775807,"a":[0.10],"$maxCount":2}`,
	}).Draw(t, "metadata")
	if rapid.Bool().Draw(t, "whole") {
		p.appended(t, storage.MetaPrefix+name, p.expectation(t, storage.MetaPrefix+name), []event{metadataEvent(data)})
		return
	}
	if cut := rapid.Int64Range(-1, p.model.stream(name).last()+3).Draw(t, "cut"); cut >= 0 {
		data = fmt.Sprintf(`{"$tb":%d}`, cut)
	}
	p.appended(t, storage.MetaPrefix+name, p.expectation(t, storage.MetaPrefix+name), []event{metadataEvent(data)})
}

// appended makes an append at both, and compares the answers.
func (p *pair) appended(t *rapid.T, name string, expected storage.Expectation, events []event) {
	t.Helper()
	want := p.model.append(name, expected, events)
	resp, err := p.c.tryAppend(runtest.Context(p.t), name, expected, events...)
	if want.verdict == storage.StreamDeleted {
		if status.Code(err) != codes.FailedPrecondition {
			t.Fatalf("append to %s, which is deleted: %v, %v", name, resp, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("append to %s at %v: %v", name, expected, err)
	}
	if w := resp.GetWrongExpectedVersion(); (w != nil) != (want.verdict == storage.WrongVersion) {
		t.Fatalf("append to %s at %v: %v, want %+v", name, expected, resp, want)
	} else if w != nil {
		got, none := int64(w.GetCurrentRevision()), w.GetCurrentNoStream() != nil
		if want.revision >= 0 && got != want.revision || none != (want.revision < 0) {
			t.Fatalf("append to %s at %v: it is at %v, want %d", name, expected, w, want.revision)
		}
		return
	}
	s := resp.GetSuccess()
	if got := int64(s.GetCurrentRevision()); got != want.revision || s.GetPosition().GetCommitPosition() != want.position {
		t.Fatalf("append to %s at %v: %v, want %+v", name, expected, s, want)
	}
}

// endName draws a stream to be deleted: seldom a metastream.
func (p *pair) endName(t *rapid.T) string {
	name := p.name(t)
	if rapid.IntRange(0, 3).Draw(t, "its metadata") == 0 {
		name = storage.MetaPrefix + name
	}
	return name
}

func (p *pair) delete(t *rapid.T) {
	name := p.endName(t)
	expected := p.expectation(t, name)
	want := p.model.delete(name, expected)
	position, _, err := p.c.tryDelete(name, expected)
	p.ended(t, "delete", want, position, err)
}

func (p *pair) tombstone(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		t.Skip("a tombstone ends the play of its stream")
	}
	name := p.endName(t)
	expected := p.expectation(t, name)
	want := p.model.entomb(name, expected)
	position, _, err := p.c.tryTombstone(name, expected)
	p.ended(t, "tombstone", want, position, err)
}

func (p *pair) ended(t *rapid.T, what string, want ruling, position uint64, err error) {
	t.Helper()
	if (err == nil) != (want.verdict == storage.Written) || err == nil && position != want.position ||
		err != nil && status.Code(err) != codes.FailedPrecondition {
		t.Fatalf("%s: position %d, %v, want %+v", what, position, err, want)
	}
}

func (p *pair) scavenge(*rapid.T) {
	p.model.scavenge()
	runtest.Must(p.t, p.node.Scavenge(runtest.Context(p.t)))
}

func (p *pair) restart(*rapid.T) {
	runtest.Must(p.t, p.node.Close())
	p.model.restarted()
	p.start()
}

// crash goes on with what a power cut would have left of the files.
func (p *pair) crash(t *rapid.T) {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	p.cfg.FS = p.cfg.FS.(*vfs.MemFS).CrashClone(
		vfs.CrashCloneCfg{UnsyncedDataPercent: rapid.SampledFrom([]int{0, 30, 100}).Draw(t, "unsynced"), RNG: rng},
	)
	runtest.Must(p.t, p.node.Close())
	p.model.restarted()
	p.start()
}

func (p *pair) restore(*rapid.T) {
	p.dirs++
	backup, dir := fmt.Sprintf("backup-%d", p.dirs), fmt.Sprintf("log-%d", p.dirs)
	runtest.Must(p.t, p.node.Backup(runtest.Context(p.t), backup))
	runtest.Must(p.t, p.node.Close())
	runtest.Must(p.t, storage.Restore(runtest.Context(p.t), p.cfg.FS, backup, dir))
	p.cfg.Dir = dir
	p.model.restarted()
	p.start()
}

// readStretch reads a part of a stream, or of its metadata.
func (p *pair) readStretch(t *rapid.T) {
	name := p.name(t)
	if rapid.Bool().Draw(t, "its metadata") {
		name = storage.MetaPrefix + name
	}
	begin, limit := rapid.Int64Range(0, 8).Draw(t, "from"), rapid.IntRange(1, 5).Draw(t, "limit")
	back := rapid.Bool().Draw(t, "backwards")
	want, found := p.model.visible(name)
	o := limited(from(ofStream(name), uint64(begin)), uint64(limit))
	if back {
		o = backwards(o)
	}
	p.compareStream(t, name, o, stretch(want, limit, back, func(e *modelEvent) bool {
		return back && e.revision <= begin || !back && e.revision >= begin
	}), found)
}

// stretch takes what fits, in a direction.
func stretch(events []*modelEvent, limit int, back bool, fits func(*modelEvent) bool) (out []*modelEvent) {
	for i := range events {
		e := events[i]
		if back {
			e = events[len(events)-1-i]
		}
		if fits(e) && len(out) < limit {
			out = append(out, e)
		}
	}
	return out
}

// kept is the whole log.
func (m *model) kept() (out []*modelEvent) {
	for _, e := range m.log {
		if !e.taken {
			out = append(out, e)
		}
	}
	return out
}

func (p *pair) readLog(t *rapid.T) {
	begin, limit := rapid.Uint64Range(0, p.model.head+2).Draw(t, "from"), rapid.IntRange(1, 8).Draw(t, "limit")
	back := rapid.Bool().Draw(t, "backwards")
	o := limited(from(ofAll(), begin), uint64(limit))
	if back {
		o = backwards(o)
	}
	events, _, _, err := p.c.tryRead(o)
	if err != nil {
		t.Fatalf("the log from %d: %v", begin, err)
	}
	p.compare(
		t,
		fmt.Sprintf("the log from %d, backwards %v", begin, back),
		stretch(p.model.kept(), limit, back, func(e *modelEvent) bool {
			return back && e.position < begin || !back && e.position >= begin
		}),
		events,
	)
}

// filter subscribes to a part of the log until that has caught up.
func (p *pair) filter(t *rapid.T) {
	after := rapid.Uint64Range(0, p.model.head+1).Draw(t, "after")
	prefix := rapid.SampledFrom([]string{"a", "b", "ab", "$$", "none"}).Draw(t, "prefix")
	s := p.c.subscribe(filtered(from(ofAll(), after), every(byStream(expression("", prefix)), 32)))
	defer s.cancel()
	var got []recordedEvent
	for {
		resp := s.next()
		if resp.GetCaughtUp() != nil {
			break
		}
		if resp.GetEvent() != nil {
			got = append(got, recordedOf(p.t, resp))
		}
	}
	p.compare(t, "filter "+prefix, stretch(p.model.kept(), len(p.model.log), false, func(e *modelEvent) bool {
		return e.position > after && len(e.stream) >= len(prefix) && e.stream[:len(prefix)] == prefix
	}), got)
}

// check compares every stream and the whole log.
func (p *pair) check(t *rapid.T) {
	for _, base := range modelNames {
		for _, name := range []string{base, storage.MetaPrefix + base, storage.MetaPrefix + storage.MetaPrefix + base} {
			want, found := p.model.visible(name)
			p.compareStream(t, name, ofStream(name), want, found)
			last := want[max(len(want)-1, 0):]
			p.compareStream(t, name, limited(backwards(atEnd(ofStream(name))), 1), last, found)
		}
	}
	p.compare(t, "the log", p.model.kept(), p.c.read(ofAll()))
}

func (p *pair) compareStream(t *rapid.T, name string, o *readOptions, want []*modelEvent, there bool) {
	t.Helper()
	events, found, _, err := p.c.tryRead(o)
	if p.model.ended(name) {
		if status.Code(err) != codes.FailedPrecondition {
			t.Fatalf("%s is tombstoned: %v", name, err)
		}
		return
	}
	if err != nil || found != there {
		t.Fatalf("%s: found %v, want %v, %v", name, found, there, err)
	}
	p.compare(t, name, want, events)
}

// seen is what is compared of an event; the ids of the node's own are its own.
type seen struct {
	stream, typ, data  string
	revision, position uint64
	id                 uuid.UUID
}

func (p *pair) compare(t *rapid.T, what string, want []*modelEvent, got []recordedEvent) {
	t.Helper()
	var wants, gots []seen
	for _, e := range want {
		wants = append(wants, seen{e.stream, e.typ, e.data, uint64(e.revision), e.position, e.id})
	}
	for i, e := range got {
		id := e.id
		if i < len(want) && want[i].id == uuid.Nil {
			id = uuid.Nil
		}
		gots = append(gots, seen{e.stream, e.typ, e.data, e.revision, e.position, id})
	}
	if diff := cmp.Diff(wants, gots, cmp.AllowUnexported(seen{})); diff != "" {
		t.Fatalf("%s: %s", what, diff)
	}
}
