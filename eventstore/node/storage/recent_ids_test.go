package storage

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

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
