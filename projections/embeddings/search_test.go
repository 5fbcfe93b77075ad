package embeddings

import (
	"cmp"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
)

// point is a data point of a test, with the direction of its one vector in degrees.
type point struct {
	id       byte
	degrees  float64
	minutes  int
	audience byte
	silent   bool
}

func (p point) key() uuid.UUID { return uuid.UUID{15: p.id} }

func direction(degrees float64) []float32 {
	sin, cos := math.Sincos(degrees * math.Pi / 180)
	return []float32{float32(cos), float32(sin)}
}

func columnOf(t *testing.T, points ...point) *column {
	t.Helper()
	col := new(column)
	var changes []change
	for i, p := range points {
		changes = append(changes, p.change(t, int64(i+1)))
	}
	col.apply(changes, nil)
	return col
}

func (p point) change(t *testing.T, position int64) change {
	t.Helper()
	scale, code, ok := memory.Quantize(direction(p.degrees))
	if !ok {
		t.Fatal("a direction without length")
	}
	return change{
		entry: entry{
			id: p.key(), audience: uuid.UUID{15: p.audience}, at: int64(p.minutes) * time.Minute.Microseconds(),
			position: position, revision: 1, spoken: !p.silent,
		},
		dims: 2, packed: pack(&memory.Embedded{Dims: 2, Vectors: []memory.Vector{{Scale: scale, Code: code}}}),
	}
}

// find returns the hits of a search towards 0 degrees, by the number of their point.
func find(t *testing.T, col *column, q Query) map[byte]Hit {
	t.Helper()
	scale, code, _ := memory.Quantize(direction(0))
	q.Size = 10
	if q.Audiences == nil {
		q.Audiences = []uuid.UUID{uuid.Nil}
	}
	s := newSearch(col, q, scale, code)
	hits, err := s.run(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[byte]Hit)
	for _, h := range hits {
		found[h.DataPoint[15]] = h
	}
	defer func() { // the tests are about cosines
		for id, h := range found {
			h.Similarity, h.Window = h.Similarity*fewDeviation, h.Window*fewDeviation
			found[id] = h
		}
	}()
	// Those that are looked up by id are equal.
	var ids []uuid.UUID
	for _, e := range col.entries {
		ids = append(ids, e.id)
	}
	again := s.of(ids)
	if len(again) != len(hits) {
		t.Errorf("%d data points by id, %d hits", len(again), len(hits))
	}
	for _, h := range again {
		if known := found[h.DataPoint[15]]; h != known {
			t.Errorf("by id %+v, found %+v", h, known)
		}
	}
	return found
}

func near(a, b float64) bool { return math.Abs(a-b) < 0.02 }

// The window of a data point holds its neighbours in the conversation that the query may read, and no others.
func TestSearch_Window(t *testing.T) {
	team := []uuid.UUID{uuid.Nil, {15: 1}}
	before, itself := point{id: 1, degrees: 60}, point{id: 2, degrees: 90, minutes: 10}
	after := point{id: 3, degrees: 0, minutes: 20}
	with := func(change func(p *point)) point {
		p := after
		change(&p)
		return p
	}
	all, two := (0.5+0+1)/3, (0.5+0)/2
	noon := time.UnixMicro(15 * time.Minute.Microseconds())
	for name, c := range map[string]struct {
		after point
		q     Query
		want  float64
	}{
		"all":                  {after, Query{}, all},
		"an hour later":        {with(func(p *point) { p.minutes = 70 }), Query{}, all},
		"later":                {with(func(p *point) { p.minutes = 71 }), Query{}, two},
		"another audience":     {with(func(p *point) { p.audience = 1 }), Query{Audiences: team}, two},
		"without an author":    {with(func(p *point) { p.silent = true }), Query{}, two},
		"after the time asked": {after, Query{To: &noon}, two},
	} {
		found := find(t, columnOf(t, before, itself, c.after), c.q)
		if got := found[2]; !near(got.Window, c.want) || !near(got.Similarity, 0) {
			t.Errorf("%s: %+v, want a window of %v", name, got, c.want)
		}
	}
}

// A deleted neighbour, or one that moved to another audience, is in no window.
func TestSearch_WindowAfterChanges(t *testing.T) {
	list := []point{{id: 1, degrees: 60}, {id: 2, degrees: 90, minutes: 10}, {id: 3, degrees: 0, minutes: 20}}
	col := columnOf(t, list...)
	col.apply(nil, []removal{{list[2].key(), 4}, {list[0].key(), 0}})
	if found := find(t, col, Query{}); len(found) != 2 || !near(found[2].Window, 0.25) {
		t.Errorf("after the deletion of one, and of what was accepted later: %+v", found)
	}
	moved := list[0]
	moved.audience = 1
	col.apply([]change{moved.change(t, 5)}, nil)
	if found := find(t, col, Query{}); len(found) != 1 || !near(found[2].Window, 0) {
		t.Errorf("after the move: %+v", found)
	}
	back := list[2]
	back.minutes = 5
	col.apply([]change{list[0].change(t, 6), back.change(t, 7)}, nil)
	if found := find(t, col, Query{}); len(found) != 3 || !near(found[2].Window, 0.5) || !near(found[1].Window, 0.75) {
		t.Errorf("after its return, and a new one between: %+v", found)
	}
}

// The order stays right whatever changes.
func TestColumn_Order(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	col := new(column)
	known := make(map[byte]point)
	for step := range int64(300) {
		var changes []change
		var removals []removal
		for range random.IntN(5) {
			p := point{id: byte(random.IntN(60)), minutes: random.IntN(50), audience: byte(random.IntN(3))}
			if random.IntN(3) == 0 {
				removals = append(removals, removal{p.key(), step})
				delete(known, p.id)
			}
		}
		for range random.IntN(5) {
			p := point{id: byte(random.IntN(60)), minutes: random.IntN(50), audience: byte(random.IntN(3))}
			changes, known[p.id] = append(changes, p.change(t, step)), p
		}
		col.apply(changes, removals)
		if random.IntN(4) == 0 {
			col.scattered = max(tidyEntries, len(col.order))
			col.tidy()
		}
		if len(col.order) != len(known) || len(col.places) != len(known) || !slices.IsSortedFunc(col.order, col.compare) {
			t.Fatalf("step %d: %d in order, %d known", step, len(col.order), len(known))
		}
		for id, p := range known {
			place := col.places[p.key()]
			if col.order[col.ordered[place]] != place {
				t.Fatalf("step %d: the index of %+v in the order is wrong", step, p)
			}
			e := col.entries[place]
			if e.id[15] != id || e.at != int64(p.minutes)*time.Minute.Microseconds() || e.audience[15] != p.audience {
				t.Fatalf("step %d: %+v is stored as %+v", step, p, e)
			}
			signs := appendSigns(nil, col.codes[e.first*col.dims:(e.first+1)*col.dims])
			if e.count != 1 || !slices.Equal(col.signs[e.signs:e.signs+len(signs)], signs) {
				t.Fatalf("step %d: the signs of %+v are wrong", step, p)
			}
		}
	}
}

// In a large column most of the nearest are found, and their similarity is exact.
func TestSearch_LargeColumn(t *testing.T) {
	const points, dims, size = 3 * maxExact, 384, 100
	random := rand.New(rand.NewPCG(3, 4))
	topics := make([][]float32, 40)
	for i := range topics {
		topics[i] = randomVector(random, dims, nil)
	}
	col := new(column)
	var changes []change
	for n := range points {
		scale, code, _ := memory.Quantize(randomVector(random, dims, topics[random.IntN(len(topics))]))
		changes = append(changes, change{
			entry: entry{id: uuid.UUID{14: byte(n >> 8), 15: byte(n)}, revision: 1, at: int64(n), spoken: n%3 > 0},
			dims:  dims, packed: pack(&memory.Embedded{Dims: dims, Vectors: []memory.Vector{{Scale: scale, Code: code}}}),
		})
	}
	random.Shuffle(points, func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	col.apply(changes, nil)
	if col.tidy(); col.scattered > 0 || !slices.IsSorted(col.order) {
		t.Error("the column is not laid out in order")
	}
	scale, code, _ := memory.Quantize(randomVector(random, dims, topics[7]))
	s := newSearch(col, Query{Audiences: []uuid.UUID{uuid.Nil}, Size: size}, scale, code)
	hits, err := s.run(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil || len(hits) != size {
		t.Fatalf("%d hits, %v", len(hits), err)
	}
	var ids []uuid.UUID
	for _, c := range changes {
		ids = append(ids, c.id)
	}
	all := s.of(ids)
	slices.SortFunc(all, func(a, b Hit) int { return int(math.Copysign(1, combined(b)-combined(a))) })
	nearest := make(map[uuid.UUID]Hit)
	for _, h := range all[:size] {
		nearest[h.DataPoint] = h
	}
	found := 0
	for _, h := range hits {
		if same, is := nearest[h.DataPoint]; is {
			found++
			if same != h {
				t.Errorf("hit %+v, by id %+v", h, same)
			}
		}
	}
	if found < size*9/10 {
		t.Errorf("%d of the %d nearest are found", found, size)
	}
	mean := 0.0
	for _, h := range all {
		mean += h.Similarity / points
	}
	if math.Abs(mean) > 0.1 {
		t.Errorf("the mean similarity is %v standard deviations", mean)
	}
}

func combined(h Hit) float64 { return 0.35*h.Similarity + 0.3*h.Window }

func randomVector(random *rand.Rand, dims int, around []float32) []float32 {
	v := make([]float32, dims)
	for i := range v {
		v[i] = float32(random.NormFloat64())
		if around != nil {
			v[i] = around[i] + 0.8*v[i]
		}
	}
	return v
}

// The best are those of a sorted list, also if values are equal, beyond the bins, or fewer than asked for.
func TestSearch_Choose(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for n := range 200 {
		s := &search{ofOwn: distribution{0, 0.01 + random.Float64()}, ofWindow: distribution{0.1, 0.02}}
		for range random.IntN(3000) {
			own := unknown
			if random.IntN(10) > 0 {
				own = float32(random.IntN(200)-100) / 100
			}
			s.own, s.window = append(s.own, own), append(s.window, float32(random.IntN(3))/10)
		}
		size := 1 + random.IntN(500)
		var want []int
		for i, own := range s.own {
			if own != unknown {
				want = append(want, i)
			}
		}
		valueOf := s.values()
		slices.SortStableFunc(want, func(a, b int) int {
			return cmp.Compare(valueOf(s.own[b], s.window[b]), valueOf(s.own[a], s.window[a]))
		})
		if want = want[:min(len(want), size)]; !slices.Equal(s.choose(size), want) {
			t.Fatalf("round %d: best %d of %d: %v, want %v", n, size, len(s.own), s.choose(size), want)
		}
	}
}

// A search allocates no more for a large project than for a small one, once there was one.
func TestSearch_AllocatesNothingForTheProject(t *testing.T) {
	const points, rounds = 40_000, 40
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection forgets what was given back
	random := rand.New(rand.NewPCG(1, 2))
	vector := func() (scale float32, code []byte) {
		v := make([]float32, 8)
		for i := range v {
			v[i] = float32(random.NormFloat64())
		}
		scale, code, _ = memory.Quantize(v)
		return scale, code
	}
	col, changes := new(column), make([]change, points)
	for n := range changes {
		scale, code := vector()
		changes[n] = change{
			entry: entry{id: uuid.New(), revision: 1, at: int64(n)}, dims: 8,
			packed: pack(&memory.Embedded{Dims: 8, Vectors: []memory.Vector{{Scale: scale, Code: code}}}),
		}
	}
	col.apply(changes, nil)
	col.tidy()
	scale, code := vector()
	run := func() {
		q := Query{Audiences: []uuid.UUID{uuid.Nil}, Size: 10}
		hits, err := newSearch(col, q, scale, code).run(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil || len(hits) != 10 {
			t.Fatalf("%d hits, %v", len(hits), err)
		}
	}
	run()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		run()
	}
	runtime.ReadMemStats(&after)
	// Two lists of values took 8 bytes for each data point. The race detector forgets a quarter of what is given back.
	if each := (after.TotalAlloc - before.TotalAlloc) / rounds; each > 4*points {
		t.Errorf("a search allocates %d bytes", each)
	}
}
