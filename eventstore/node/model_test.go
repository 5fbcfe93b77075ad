package node

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"
)

// modelStream is what a stream should be after what was done to it.
type modelStream struct {
	ids        []uuid.UUID
	cut        int64 // $tb
	maxCount   int64
	hasMeta    bool
	soft, gone bool
}

func (m *modelStream) last() int64 { return int64(len(m.ids)) - 1 }

// visible are the revisions that a reader sees; found is false where the stream is not there for readers.
func (m *modelStream) visible() (revisions []uint64, found bool) {
	revisions = []uint64{}
	if m.soft || len(m.ids) == 0 {
		return revisions, false
	}
	first := m.cut
	if m.maxCount > 0 {
		first = max(first, m.last()-m.maxCount+1)
	}
	for r := first; r <= m.last(); r++ {
		revisions = append(revisions, uint64(r))
	}
	return revisions, true
}

// accepts says whether events that are all new may be written.
func (m *modelStream) accepts(e expectation) bool {
	switch {
	case m.gone:
		return false
	case e.kind == expectAny:
		return true
	case e.kind == expectExists:
		return !m.soft && (len(m.ids) > 0 || m.hasMeta)
	}
	return e.revision == m.last() || e.revision == noStream && m.soft
}

func drawExpectation(t *rapid.T, last int64) expectation {
	return rapid.OneOf(
		rapid.Just(at(last)), rapid.Just(at(last)), rapid.Just(anyRevision), rapid.Just(existing), rapid.Just(none),
		rapid.Map(rapid.Int64Range(0, 6), at),
	).Draw(t, "expected")
}

// Whatever is done in whatever order, with restarts in between: every stream, and the whole log, is what the rules make of it.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := memoryConfig()
		n := startNode(rt, cfg)
		c := dial(rt, n)
		model := map[string]*modelStream{"a": {}, "b": {}}
		stream := func(t *rapid.T) (string, *modelStream) {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "stream")
			return name, model[name]
		}
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				name, m := stream(t)
				events := newEvents(rapid.IntRange(1, 3).Draw(t, "events"))
				expected := drawExpectation(t, m.last())
				resp, err := c.tryAppend(testContext(rt), name, expected, events...)
				if written := resp.GetSuccess() != nil; written != m.accepts(expected) {
					t.Fatalf("append at %v: %v, %v", expected, resp, err)
				}
				if !m.accepts(expected) {
					return
				}
				if m.soft {
					m.soft, m.cut, m.maxCount = false, m.last()+1, 0
				}
				for _, e := range events {
					m.ids = append(m.ids, e.id)
				}
				if got := int64(resp.GetSuccess().GetCurrentRevision()); got != m.last() {
					t.Fatalf("appended up to %d, want %d", got, m.last())
				}
			},
			"append again": func(t *rapid.T) {
				name, m := stream(t)
				if len(m.ids) < 2 || m.cut > 0 || m.gone || m.soft {
					t.Skip("nothing that is surely still there")
				}
				first := rapid.Int64Range(0, m.last()-1).Draw(t, "first")
				count := rapid.Int64Range(1, m.last()-first).Draw(t, "count")
				var events []event
				for _, id := range m.ids[first : first+count] {
					events = append(events, event{id: id, typ: "tested", data: "{}"})
				}
				revision, _ := c.append(name, at(first-1), events...)
				if int64(revision) != first+count-1 {
					t.Fatalf("again %d to %d: answered %d", first, first+count-1, revision)
				}
			},
			"metadata": func(t *rapid.T) {
				name, m := stream(t)
				cut, count := rapid.Int64Range(0, m.last()+1).Draw(t, "cut"), rapid.Int64Range(1, 4).Draw(t, "maxCount")
				cut = max(cut, m.cut) // what was cut may be removed already
				resp, err := c.tryAppend(testContext(rt), "$$"+name, anyRevision, metadataEvent(fmt.Sprintf(`{"$tb":%d,"$maxCount":%d}`, cut, count)))
				if (resp.GetSuccess() != nil) == m.gone {
					t.Fatalf("metadata: %v, %v", resp, err)
				}
				if m.gone {
					return
				}
				if m.soft {
					m.soft, cut = false, m.last()+1
				}
				m.hasMeta, m.cut, m.maxCount = true, cut, count
			},
			"delete": func(t *rapid.T) {
				name, m := stream(t)
				expected := drawExpectation(t, m.last())
				want := m.accepts(expected) && (len(m.ids) > 0 || m.hasMeta)
				if _, _, err := c.tryDelete(name, expected); (err == nil) != want {
					t.Fatalf("delete at %v: %v", expected, err)
				}
				if want {
					m.soft, m.hasMeta = true, true
				}
			},
			"tombstone": func(t *rapid.T) {
				name, m := stream(t)
				if rapid.IntRange(0, 4).Draw(t, "seldom") > 0 {
					t.Skip("a tombstone ends the play of its stream")
				}
				expected := drawExpectation(t, m.last())
				if _, _, err := c.tryTombstone(name, expected); (err == nil) != m.accepts(expected) {
					t.Fatalf("tombstone at %v: %v", expected, err)
				}
				m.gone = m.gone || m.accepts(expected)
			},
			"restart": func(t *rapid.T) {
				if err := n.Close(); err != nil {
					t.Fatal(err)
				}
				n = startNode(rt, cfg)
				c = dial(rt, n)
			},
			"": func(t *rapid.T) {
				for name, m := range model {
					events, found, _, err := c.tryRead(ofStream(name))
					if m.gone {
						if status.Code(err) != codes.FailedPrecondition {
							t.Fatalf("%s is tombstoned: %v", name, err)
						}
						continue
					}
					want, there := m.visible()
					if err != nil || found != there {
						t.Fatalf("%s: found %v, %v", name, found, err)
					}
					if diff := cmp.Diff(want, revisions(events)); diff != "" {
						t.Fatalf("%s: %s", name, diff)
					}
					for _, e := range events {
						if e.id != m.ids[e.revision] {
							t.Fatalf("%s: another event at %d", name, e.revision)
						}
					}
				}
				before := uint64(0)
				for _, e := range c.read(ofAll()) {
					if e.position <= before {
						t.Fatalf("position %d after %d", e.position, before)
					}
					before = e.position
				}
			},
		})
	})
}
