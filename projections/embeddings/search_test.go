package embeddings

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
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

// A data point below the least cosine is no hit. It counts in the windows of others, and is found by id.
func TestSearch_Least(t *testing.T) {
	list := []point{
		{id: 1}, {id: 2, degrees: 40, minutes: 10}, {id: 3, degrees: 70, minutes: 20}, {id: 4, degrees: 90, minutes: 30},
	}
	scale, code, _ := memory.Quantize(direction(0))
	for name, c := range map[string]struct {
		least float64
		want  []byte
	}{
		"no limit": {0, []byte{1, 2, 3, 4}}, "some": {0.5, []byte{1, 2}}, "all": {0.1, []byte{1, 2, 3}},
		"one": {0.9, []byte{1}}, "none": {1.1, nil},
	} {
		s := newSearch(columnOf(t, list...), Query{Audiences: []uuid.UUID{uuid.Nil}, Size: 10}, scale, code)
		var asked int
		s.leastOf = func(vectors int) float64 { asked = vectors; return c.least }
		hits, err := s.run(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for _, h := range hits {
			got = append(got, h.DataPoint[15])
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) || asked != len(list) {
			t.Errorf("%s: %v of %d, want %v", name, got, asked, c.want)
		}
		byID := s.of([]uuid.UUID{{15: 1}, {15: 2}, {15: 3}, {15: 4}})
		if len(byID) != len(list) {
			t.Fatalf("%s: %d by id", name, len(byID))
		}
		for i, h := range byID {
			if want := math.Cos(list[i].degrees * math.Pi / 180); !near(h.Cosine, want) {
				t.Errorf("%s: cosine %v of %d, want %v", name, h.Cosine, h.DataPoint[15], want)
			}
		}
		// The window of the second has the third in it, whatever the least cosine is.
		want := (math.Cos(0) + math.Cos(40*math.Pi/180) + math.Cos(70*math.Pi/180)) / 3
		if h := byID[1]; !near(h.Window*fewDeviation, want) {
			t.Errorf("%s: window %v, want %v", name, h.Window*fewDeviation, want)
		}
	}
}

// In a large column too, every hit has an exact cosine of at least the least, and few of those that have it are lost.
func TestSearch_LeastInLargeColumn(t *testing.T) {
	const points, dims, size, least = 2 * maxExact, 384, 200, 0.3
	random := rand.New(rand.NewPCG(5, 6))
	topics := make([][]float32, 80)
	for i := range topics {
		topics[i] = randomVector(random, dims, nil)
	}
	col := new(column)
	var changes []change
	var ids []uuid.UUID
	for n := range points {
		scale, code, _ := memory.Quantize(randomVector(random, dims, topics[random.IntN(len(topics))]))
		id := uuid.UUID{14: byte(n >> 8), 15: byte(n)}
		ids = append(ids, id)
		changes = append(changes, change{
			entry: entry{id: id, revision: 1, at: int64(n)}, dims: dims,
			packed: pack(&memory.Embedded{Dims: dims, Vectors: []memory.Vector{{Scale: scale, Code: code}}}),
		})
	}
	col.apply(changes, nil)
	for name, towards := range map[string][]float32{"a topic": topics[7], "nothing": randomVector(random, dims, nil)} {
		scale, code, _ := memory.Quantize(towards)
		s := newSearch(col, Query{Audiences: []uuid.UUID{uuid.Nil}, Size: size}, scale, code)
		s.leastOf = func(int) float64 { return least }
		hits, err := s.run(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		above := make(map[uuid.UUID]float64)
		for _, h := range s.of(ids) {
			if h.Cosine >= least {
				above[h.DataPoint] = h.Cosine
			}
		}
		for _, h := range hits {
			if cosine, is := above[h.DataPoint]; !is || cosine != h.Cosine {
				t.Errorf("%s: hit with cosine %v, by id %v", name, h.Cosine, cosine)
			}
		}
		want := min(size, len(above))
		if len(hits) < want*9/10 || name == "a topic" && want < 50 || name == "nothing" && want > 0 {
			t.Errorf("%s: %d hits of %d above the least cosine", name, len(hits), len(above))
		}
	}
}

// A column over its limit forgets what changed longest ago, and works like one that never had it.
func TestColumn_OverItsLimit(t *testing.T) {
	const many = 200
	col, whole := new(column), new(column)
	col.limit = 50 * (entryBytes + 2 + 4 + 8)
	var known []byte
	for n := range many {
		p := point{id: byte(n), degrees: float64(n % 90), minutes: n / 2, audience: byte(n % 3)}
		if n%7 == 6 {
			p.id = byte(n - 5) // a new revision of an earlier one
		}
		c := p.change(t, int64(n+1))
		col.apply([]change{c}, nil)
		col.forget()
		whole.apply([]change{c}, nil)
		if size := col.size.Load(); size > col.limit {
			t.Fatalf("%d bytes after change %d, want at most %d", size, n, col.limit)
		}
		known = append(slices.DeleteFunc(known, func(id byte) bool { return id == p.id }), p.id)
	}
	if len(col.places) < 20 || len(col.places) >= len(known) {
		t.Fatalf("%d of %d data points are left", len(col.places), len(known))
	}
	for i, id := range known {
		_, has := col.places[point{id: id}.key()]
		if want := i >= len(known)-len(col.places); has != want {
			t.Errorf("data point %d of %d, in order of change: known %t, want %t", i, len(known), has, want)
		}
	}
	// A deletion of what is forgotten changes nothing. What is left is found as in the whole column.
	newest := point{id: known[len(known)-1]}.key()
	for _, c := range []*column{col, whole} {
		c.apply(nil, []removal{{point{id: known[0]}.key(), many}, {newest, many}})
	}
	scale, code, _ := memory.Quantize(direction(30))
	q := Query{Audiences: []uuid.UUID{{}, {15: 1}}, Size: many}
	hits := func(c *column) map[uuid.UUID]float64 {
		found, err := newSearch(c, q, scale, code).run(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		cosines := map[uuid.UUID]float64{}
		for _, hit := range found {
			cosines[hit.DataPoint] = hit.Cosine
		}
		return cosines
	}
	left, all := hits(col), hits(whole)
	if len(left) == 0 || len(left) >= len(all) {
		t.Errorf("%d hits, and %d in the whole column", len(left), len(all))
	}
	for id, cosine := range left {
		if all[id] != cosine || id == newest {
			t.Errorf("%s has the cosine %f, want %f", id, cosine, all[id])
		}
	}
}

// The projects that were searched longest ago are evicted, and no project takes more than half.
func TestColumns_Evict(t *testing.T) {
	c := NewColumns(nil, "m")
	c.bytes = 100
	sized := func(id byte, size int64) *column {
		col := c.of(uuid.UUID{15: id})
		col.asked.Store(int64(len(c.projects)))
		col.size.Store(size)
		return col
	}
	sized(1, 40)
	sized(2, 40)
	c.evict(sized(3, 50))
	if len(c.projects) != 2 || c.projects[uuid.UUID{15: 1}] != nil {
		t.Errorf("left are %d projects, want all but the one that was searched longest ago", len(c.projects))
	}
	if limit := c.of(uuid.UUID{15: 3}).limit; limit != 50 {
		t.Errorf("one project may take %d of %d bytes, want half", limit, c.bytes)
	}
	if NewColumns(nil, "m").bytes != columnsBytes {
		t.Error("columns do not have their bound")
	}
}

// A dead endpoint costs the timeout once. A probe runs next to the recalls, and none waits for it.
func TestFinder_DeadEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, dead := 0, true
		f := NewFinder(func(ctx context.Context, _ string) ([]float32, error) {
			calls++
			if dead {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []float32{1}, nil
		}, NewColumns(nil, "m"), slog.New(slog.DiscardHandler))
		ask := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			if found := f.Find(t.Context(), Query{Size: 1}, "text"); found != nil && len(found.Hits) > 0 {
				t.Errorf("hits %v", found.Hits)
			}
			if took := time.Since(began); took != want {
				t.Errorf("it took %s, want %s", took, want)
			}
			synctest.Wait()
		}
		ask(searchTimeout)
		ask(0)
		ask(0)
		if up, without := f.Up(); up || without != 3 || calls != 1 {
			t.Errorf("up %v, %d without, %d calls", up, without, calls)
		}
		<-time.After(firstPause)
		ask(0) // starts a probe
		if calls != 2 {
			t.Errorf("%d calls", calls)
		}
		<-time.After(probeTimeout)
		synctest.Wait()
		ask(0) // now pauses for twice as long
		if calls != 2 {
			t.Errorf("%d calls within the second rest", calls)
		}
		dead = false
		<-time.After(2 * firstPause)
		ask(0)
		if up, _ := f.Up(); !up || calls != 3 {
			t.Errorf("up %v after %d calls", up, calls)
		}
		ask(0) // the model replies, but these columns have no database
		if up, without := f.Up(); !up || without != 7 || calls != 4 {
			t.Errorf("up %v, %d without, %d calls", up, without, calls)
		}
	})
}

func TestFinder_CancelledRecall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := NewFinder(func(context.Context, string) ([]float32, error) {
		cancel()
		return nil, errors.New("canceled")
	}, NewColumns(nil, "m"), slog.New(slog.DiscardHandler))
	f.Find(ctx, Query{Size: 1}, "text")
	if up, _ := f.Up(); !up {
		t.Error("it rests")
	}
}
