package embeddings

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/quantized"
)

const (
	// checkEvery is the number of entries between two checks whether the context has ended.
	checkEvery = 512
	// minShared is the number of entries from which several goroutines share the work.
	minShared = 8192
	// maxExact is the number of entries up to which all vectors are compared. In larger columns the signs of the
	// dimensions choose which: oversampling times as many as are wanted, and about statisticsSample others for the
	// distribution. The neighbours of refining times as many as are wanted are compared, too.
	maxExact         = 4096
	oversampling     = 8
	refining         = 2
	statisticsSample = 512
	// minDistribution is the least number of entries with a useful distribution. Of fewer, a cosine of fewDeviation counts
	// as one standard deviation.
	minDistribution = 8
	fewDeviation    = 0.25
)

// search is one comparison of a text with a column. Its slices are by the column's order.
type search struct {
	col  *column
	q    Query
	from int64
	to   int64
	// scale, code and signs are the vector of the text.
	scale float32
	code  []int16
	signs []uint64
	// least is the least cosine of a hit, 0 for no limit, as leastOf returns it. That may be nil.
	least   float32
	leastOf Least
	// own is the similarity of each data point, window the mean of it and of its neighbours in the conversation.
	own, window     []float32
	ofOwn, ofWindow distribution
}

func newSearch(col *column, q Query, scale float32, code []byte) *search {
	s := &search{
		col: col, q: q, from: math.MinInt64, to: math.MaxInt64,
		scale: scale, code: widen(code), signs: appendSigns(nil, code),
	}
	if q.From != nil {
		s.from = q.From.UnixMicro()
	}
	if q.To != nil {
		s.to = q.To.UnixMicro()
	}
	return s
}

// readable reports whether the query may read an entry that has vectors.
func (s *search) readable(e *entry) bool {
	return e.count > 0 && e.at >= s.from && e.at <= s.to && slices.Contains(s.q.Audiences, e.audience)
}

// exact is the cosine of the best vector of an entry.
func (s *search) exact(e *entry) float32 {
	dims, most := s.col.dims, unknown
	for n := e.first; n < e.first+e.count; n++ {
		most = max(most, s.col.scales[n]*float32(quantized.Dot(s.code, s.col.codes[n*dims:(n+1)*dims])))
	}
	return most * s.scale
}

// rough estimates the cosine from the signs: the share of the dimensions whose signs differ is about the angle.
func (s *search) rough(e *entry) float32 {
	size, least := len(s.signs), s.col.dims
	for n := range e.count {
		differ := 0
		for i, word := range s.col.signs[e.signs+n*size:][:size] {
			differ += bits.OnesCount64(word ^ s.signs[i])
		}
		least = min(least, differ)
	}
	return 1 - 2*float32(least)/float32(s.col.dims)
}

// run finds the nearest data points, best first.
func (s *search) run(ctx context.Context, log *slog.Logger) ([]Hit, error) {
	s.col.mu.RLock()
	defer s.col.mu.RUnlock()
	if s.col.dims != len(s.code) || s.q.Size <= 0 {
		return nil, nil
	}
	order := s.col.order
	all := len(order) <= maxExact
	similarity := s.rough
	if all {
		similarity = s.exact
	}
	own, window := takeValues(len(order)), takeValues(len(order))
	defer func() {
		s.own, s.window = nil, nil
		given.Put(own)
		given.Put(window)
	}()
	s.own, s.window = *own, *window
	if err := s.compare(ctx, log, similarity); err != nil {
		return nil, err
	}
	s.average()
	count := s.measure()
	if s.leastOf != nil {
		s.least = float32(s.leastOf(s.vectors()))
	}
	if all {
		s.dropUnlike()
		return s.best(s.q.Size), ctx.Err()
	}
	chosen := s.choose(oversampling * s.q.Size)
	roughly := s.ofOwn
	s.sample(count)
	return s.refine(chosen, roughly), ctx.Err()
}

// hit returns the entry at a place of the order with its similarities.
func (s *search) hit(i int, own, window float32) Hit {
	e := &s.col.entries[s.col.order[i]]
	return Hit{
		DataPoint: e.id, Revision: e.revision,
		Similarity: s.ofOwn.standard(own), Window: s.ofWindow.standard(window), Cosine: float64(own),
	}
}

// compare sets the similarity of all entries that the query may read, on all processors if there are many.
func (s *search) compare(ctx context.Context, log *slog.Logger, similarity func(*entry) float32) error {
	order, workers := s.col.order, 1
	if len(order) > minShared {
		workers = runtime.GOMAXPROCS(0)
	}
	var group errgroup.Group
	for w := range workers {
		group.Go(func() error {
			return panics.Call(ctx, log, "comparing vectors panicked", func() error {
				for i := len(order) * w / workers; i < len(order)*(w+1)/workers; i++ {
					if i%checkEvery == 0 && ctx.Err() != nil {
						return ctx.Err()
					}
					s.own[i] = unknown
					if e := &s.col.entries[order[i]]; s.readable(e) {
						s.own[i] = similarity(e)
					}
				}
				return nil
			})
		})
	}
	return group.Wait()
}

// average sets the mean of each entry and of its neighbours in the conversation.
func (s *search) average() {
	before := unknown
	for i, own := range s.own {
		after := unknown
		if s.col.continues(i + 1) {
			after = s.own[i+1]
		}
		s.window[i] = mean(own, before, after)
		if before = own; after == unknown {
			before = unknown
		}
	}
}

// mean returns the mean of a similarity and of the known ones of those before and after it. It has no division,
// since it is called for each entry.
func mean(own, before, after float32) float32 {
	switch {
	case own == unknown || before == unknown && after == unknown:
		return own
	case before == unknown:
		return (own + after) * 0.5
	case after == unknown:
		return (own + before) * 0.5
	default:
		return (own + before + after) * (1. / 3)
	}
}

// exactAt compares the vectors of an entry and of its neighbours in the conversation.
func (s *search) exactAt(i int) (own, window float32) {
	if own = s.exactIfReadable(i); own == unknown {
		return unknown, unknown
	}
	before, after := unknown, unknown
	if s.col.continues(i) {
		before = s.exactIfReadable(i - 1)
	}
	if s.col.continues(i + 1) {
		after = s.exactIfReadable(i + 1)
	}
	return own, mean(own, before, after)
}

// exactIfReadable is unknown for an entry that the query may not read.
func (s *search) exactIfReadable(i int) float32 {
	if e := &s.col.entries[s.col.order[i]]; s.readable(e) {
		return s.exact(e)
	}
	return unknown
}

// measure finds what is usual, and returns how many entries the query may read. Of few entries nothing is usual: their
// cosines count.
func (s *search) measure() (count int) {
	s.ofOwn, count = distributionOf(s.own)
	s.ofWindow, _ = distributionOf(s.window)
	for _, d := range []*distribution{&s.ofOwn, &s.ofWindow} {
		if count < minDistribution || d.deviation < 1e-6 {
			*d = distribution{0, fewDeviation}
		}
	}
	return count
}

// sample measures exactly, on entries evenly spread over the readable ones, of which there are count.
func (s *search) sample(count int) {
	size := min(count, statisticsSample)
	own, window := make([]float32, 0, size), make([]float32, 0, size)
	seen, next := 0, 0
	for i := range s.own {
		if s.own[i] == unknown {
			continue
		}
		if seen == next && len(own) < size {
			o, w := s.exactAt(i)
			own, window = append(own, o), append(window, w)
			next = len(own) * count / size
		}
		seen++
	}
	of := &search{own: own, window: window}
	of.measure()
	s.ofOwn, s.ofWindow = of.ofOwn, of.ofWindow
}

// values returns the function that ranks entries. It has no division, since it is called for each of them.
func (s *search) values() func(own, window float32) float32 {
	own, window := recall.SemanticWeight/s.ofOwn.deviation, recall.WindowWeight/s.ofWindow.deviation
	usual := own*s.ofOwn.mean + window*s.ofWindow.mean
	return func(ofOwn, ofWindow float32) float32 {
		return float32(own*float64(ofOwn) + window*float64(ofWindow) - usual)
	}
}

// choose returns the places in the order of the best size entries, best first.
func (s *search) choose(size int) []int {
	valueOf := s.values()
	least := s.leastBin(size, valueOf)
	var best []uint64
	for i, own := range s.own {
		if own == unknown {
			continue
		}
		if value := valueOf(own, s.window[i]); binOf(value) >= least {
			best = append(best, rankKey(value, i))
		}
	}
	slices.Sort(best)
	best = best[max(0, len(best)-size):]
	places := make([]int, len(best))
	for n, key := range best {
		places[len(best)-1-n] = int(^uint32(key))
	}
	return places
}

// Values are counted in bins from -binDeviations up to binDeviations.
const (
	bins          = 4096
	binDeviations = 16
)

// binOf returns the bin of a value. A greater value is in the same bin or in a later one.
func binOf(value float32) int {
	return min(max(int((value+binDeviations)*(bins/(2*binDeviations))), 0), bins-1)
}

// leastBin returns a bin such that at least size entries, and few more, are in it or in later ones: it is
// faster to count in bins than to sort.
func (s *search) leastBin(size int, valueOf func(own, window float32) float32) int {
	var counts [bins]int
	for i, own := range s.own {
		if own != unknown {
			counts[binOf(valueOf(own, s.window[i]))]++
		}
	}
	for n := bins - 1; n > 0; n-- {
		if size -= counts[n]; size <= 0 {
			return n
		}
	}
	return 0
}

// rankKey returns a number that is greater for a greater value, and of equal values for the earlier place:
// numbers sort faster than candidates do.
func rankKey(value float32, place int) uint64 {
	ordered := math.Float32bits(value)
	if ordered&(1<<31) != 0 {
		ordered = ^ordered
	} else {
		ordered |= 1 << 31
	}
	return uint64(ordered)<<32 | uint64(^uint32(place))
}

// best returns the size best entries, best first.
func (s *search) best(size int) []Hit {
	places := s.choose(size)
	hits := make([]Hit, len(places))
	for n, i := range places {
		hits[n] = s.hit(i, s.own[i], s.window[i])
	}
	return hits
}

// of compares data points by id: those that the query may read and that have vectors.
func (s *search) of(ids []uuid.UUID) []Hit {
	s.col.mu.RLock()
	defer s.col.mu.RUnlock()
	if s.col.dims != len(s.code) {
		return nil
	}
	hits := make([]Hit, 0, len(ids))
	for _, id := range ids {
		place, known := s.col.places[id]
		if !known || !s.readable(&s.col.entries[place]) {
			continue
		}
		i := int(s.col.ordered[place])
		own, window := s.exactAt(i)
		hits = append(hits, s.hit(i, own, window))
	}
	return hits
}

// widen returns the signed bytes of a code as numbers of 16 bits.
func widen(code []byte) []int16 {
	wide := make([]int16, len(code))
	for i, c := range code {
		wide[i] = int16(int8(c))
	}
	return wide
}

// Least returns the cosine from which a text has something in common with a query, if the query may read so many
// vectors: the more there are, the nearer is the nearest of them by chance. 0 is no limit.
type Least func(vectors int) float64

// vectors counts those of the entries that the query may read.
func (s *search) vectors() (count int) {
	for i, own := range s.own {
		if own != unknown {
			count += s.col.entries[s.col.order[i]].count
		}
	}
	return count
}

// unlike reports whether an exact cosine is too low for a hit.
func (s *search) unlike(own float32) bool { return s.least > 0 && own < s.least }

// dropUnlike leaves out the entries that are too unlike the text. The distribution and the windows know them already.
func (s *search) dropUnlike() {
	for i, own := range s.own {
		if s.unlike(own) {
			s.own[i] = unknown
		}
	}
}

// nearest is a chosen entry: its place in the order and its similarities.
type nearest struct {
	place       int
	own, window float32
}

// refine returns the best of the chosen entries that are not too unlike the text. It compares all of them exactly, and
// the neighbours only of the best: the others are ranked by the rough similarities of their neighbours, which it scales
// to exact ones. roughly is the distribution of rough similarities.
func (s *search) refine(chosen []int, roughly distribution) []Hit {
	stretch := float32(s.ofOwn.deviation / roughly.deviation)
	shift := float32(s.ofOwn.mean) - stretch*float32(roughly.mean)
	stretched := func(i int) float32 {
		if s.own[i] == unknown {
			return unknown
		}
		return shift + stretch*s.own[i]
	}
	list := make([]nearest, 0, len(chosen))
	for _, i := range chosen {
		own := s.exactIfReadable(i)
		if s.unlike(own) {
			continue
		}
		before, after := unknown, unknown
		if s.col.continues(i) {
			before = stretched(i - 1)
		}
		if s.col.continues(i + 1) {
			after = stretched(i + 1)
		}
		list = append(list, nearest{i, own, mean(own, before, after)})
	}
	list = s.rank(list, refining*s.q.Size)
	for n, c := range list {
		list[n].own, list[n].window = s.exactAt(c.place)
	}
	list = s.rank(list, s.q.Size)
	hits := make([]Hit, len(list))
	for n, c := range list {
		hits[n] = s.hit(c.place, c.own, c.window)
	}
	return hits
}

// rank returns the size best of a list, best first.
func (s *search) rank(list []nearest, size int) []nearest {
	valueOf := s.values()
	slices.SortFunc(list, func(a, b nearest) int {
		return cmp.Compare(
			rankKey(valueOf(b.own, b.window), b.place), rankKey(valueOf(a.own, a.window), a.place),
		)
	})
	return list[:min(len(list), size)]
}

// unknown is the similarity of an entry that the query may not read, or that has no vector.
const unknown = float32(-2)

// distribution is what is usual for a similarity.
type distribution struct{ mean, deviation float64 }

// distributionOf ignores what is unknown.
func distributionOf(values []float32) (d distribution, count int) {
	var sum, squares float64
	for _, v := range values {
		if v != unknown {
			sum, squares, count = sum+float64(v), squares+float64(v)*float64(v), count+1
		}
	}
	if count == 0 {
		return distribution{0, 1}, 0
	}
	d.mean = sum / float64(count)
	d.deviation = math.Sqrt(max(0, squares/float64(count)-d.mean*d.mean))
	return d, count
}

// standard returns how many standard deviations a similarity exceeds the usual one.
func (d distribution) standard(similarity float32) float64 {
	return (float64(similarity) - d.mean) / d.deviation
}

// given holds lists of values by the order of a column that searches gave back: they are as long as a project is large.
// Who takes one writes all of it.
var given sync.Pool

// takeValues returns a list of a length. Its values are those of another search.
func takeValues(length int) *[]float32 {
	list, _ := given.Get().(*[]float32)
	if list == nil || cap(*list) < length {
		list = new(make([]float32, length))
	}
	*list = (*list)[:length]
	return list
}
