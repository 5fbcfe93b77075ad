package bleve

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	index "github.com/blevesearch/bleve_index_api"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// Search implements recallindex.Index. It walks the postings of the terms itself, all at once in the order of documents,
// and scores with the very function that ranks: what it cuts off would have been ranked below what it keeps.
func (x *Index) Search(ctx context.Context, q recallindex.Query) (recallindex.Found, error) {
	if err := x.enter(ctx); err != nil {
		return recallindex.Found{}, err
	}
	defer x.leave()
	found := recallindex.Found{Statistics: recall.Statistics{Frequencies: make([]recall.Count, len(q.Terms))}}
	err := x.with(q.Project, false, func(h *handle) error {
		if h.index == nil || len(q.Terms) == 0 {
			return nil
		}
		engine, err := h.index.Advanced()
		if err != nil {
			return err
		}
		reader, err := engine.Reader()
		if err != nil {
			return err
		}
		err = search(ctx, reader, q, &found)
		return errors.Join(err, reader.Close())
	})
	if err != nil {
		return recallindex.Found{}, fmt.Errorf("search recall index: %w", err)
	}
	return found, nil
}

// search fills found from one snapshot of the index.
func search(ctx context.Context, reader index.IndexReader, q recallindex.Query, found *recallindex.Found) (err error) {
	docs, err := count(ctx, reader, partField, string(q.Part))
	if err != nil || docs == 0 {
		return err
	}
	found.Statistics.Docs = docs
	walk := &walk{counts: make([]recall.Count, len(q.Terms))}
	defer func() { err = errors.Join(err, walk.close()) }()
	for i, term := range q.Terms {
		n, err := walk.add(ctx, reader, term, textOf(q.Part), i, false)
		if err != nil {
			return err
		}
		found.Statistics.Frequencies[i].Text = n
		if q.Part != recallindex.Sources {
			continue
		}
		if n, err = walk.add(ctx, reader, term, labelField, i, true); err != nil {
			return err
		}
		found.Statistics.Frequencies[i].Label = n
	}
	filter, err := newFilter(ctx, reader, q)
	if err != nil {
		return err
	}
	best := &best{size: q.Size}
	weights := found.Statistics.Weights()
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		id, ok := walk.next()
		if walk.err != nil {
			return walk.err
		}
		if !ok {
			break
		}
		score := weights.Score(walk.counts, walk.length)
		if !best.takes(score) {
			continue
		}
		passes, err := filter.passes(id)
		if err != nil {
			return err
		}
		if passes {
			best.add(candidate{id: id, score: score, counts: append([]recall.Count(nil), walk.counts...), length: walk.length})
		}
	}
	found.Hits = make([]recallindex.Hit, 0, len(best.list))
	for _, c := range best.list {
		external, err := reader.ExternalID(index.NewIndexInternalID(nil, c.id))
		if err != nil {
			return err
		}
		k, err := key(external)
		if err != nil {
			return err
		}
		found.Hits = append(found.Hits, recallindex.Hit{Key: k, Counts: c.counts, Length: c.length})
	}
	return nil
}

// count is how many documents hold a term.
func count(ctx context.Context, reader index.IndexReader, field, term string) (int, error) {
	postings, err := reader.TermFieldReader(ctx, []byte(term), field, false, false, false)
	if err != nil {
		return 0, err
	}
	return int(postings.Count()), postings.Close()
}

// walk goes through the postings of several terms at once.
type walk struct {
	postings []*posting
	// counts and length describe the document that next found last.
	counts []recall.Count
	length int
	err    error
}

// posting is the list of documents of one term in one field. at is the document it stands at, math.MaxUint64 at the end.
type posting struct {
	reader index.TermFieldReader
	doc    index.TermFieldDoc
	at     uint64
	term   int
	label  bool
}

// add adds the postings of a term; n is how many documents hold it.
func (w *walk) add(ctx context.Context, reader index.IndexReader, term, field string, i int, label bool) (n int, err error) {
	postings, err := reader.TermFieldReader(ctx, []byte(term), field, !label, !label, false)
	if err != nil {
		return 0, err
	}
	if n = int(postings.Count()); n == 0 {
		return 0, postings.Close()
	}
	p := &posting{reader: postings, term: i, label: label}
	w.postings = append(w.postings, p)
	return n, p.step()
}

func (p *posting) step() error {
	doc, err := p.reader.Next(&p.doc)
	if err != nil {
		return err
	}
	p.at = math.MaxUint64
	if doc != nil {
		p.at = doc.ID.Value()
	}
	return nil
}

// next goes to the next document that holds any of the terms. ok is false at the end, and after an error.
func (w *walk) next() (id uint64, ok bool) {
	id = math.MaxUint64
	for _, p := range w.postings {
		id = min(id, p.at)
	}
	if id == math.MaxUint64 {
		return 0, false
	}
	clear(w.counts)
	w.length = 0
	for _, p := range w.postings {
		if p.at != id {
			continue
		}
		if p.label {
			w.counts[p.term].Label = 1
		} else {
			w.counts[p.term].Text = int(p.doc.Freq)
			// Bleve hands out one over the root of the length.
			w.length = int(math.Round(1 / (p.doc.Norm * p.doc.Norm)))
		}
		if w.err = p.step(); w.err != nil {
			return 0, false
		}
	}
	return id, true
}

func (w *walk) close() error {
	var errs []error
	for _, p := range w.postings {
		errs = append(errs, p.reader.Close())
	}
	return errors.Join(errs...)
}

// candidate is a document that may be among the best.
type candidate struct {
	id     uint64
	score  float64
	counts []recall.Count
	length int
}

// best keeps the candidates with the highest scores; of equal ones the first in the index.
type best struct {
	size int
	list []candidate
}

func (b *best) Len() int           { return len(b.list) }
func (b *best) Less(i, j int) bool { return worse(b.list[i], b.list[j]) }
func (b *best) Swap(i, j int)      { b.list[i], b.list[j] = b.list[j], b.list[i] }
func (b *best) Push(c any)         { b.list = append(b.list, c.(candidate)) }
func (b *best) Pop() any           { panic("never called: the worst is replaced, not taken out") }

func worse(a, b candidate) bool {
	if a.score != b.score {
		return a.score < b.score
	}
	return a.id > b.id
}

func (b *best) takes(score float64) bool {
	return len(b.list) < b.size || b.size > 0 && score > b.list[0].score
}

func (b *best) add(c candidate) {
	if len(b.list) < b.size {
		heap.Push(b, c)
		return
	}
	b.list[0] = c
	heap.Fix(b, 0)
}

// filter lets documents of some audiences and days pass. Its zero value lets everything pass.
type filter struct {
	values    index.DocValueReader
	audiences [][]byte
	from, to  []byte
}

// newFilter asks nothing of documents that all of them fulfil: mostly, everything is project-visible and in the past.
func newFilter(ctx context.Context, reader index.IndexReader, q recallindex.Query) (*filter, error) {
	f := new(filter)
	var fields []string
	all, err := reader.DocCount()
	if err != nil {
		return nil, err
	}
	audiences := slices.Clone(q.Audiences)
	slices.SortFunc(audiences, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	audiences = slices.Compact(audiences)
	reached := 0
	for _, a := range audiences {
		n, err := count(ctx, reader, audienceField, a.String())
		if err != nil {
			return nil, err
		}
		reached += n
	}
	if reached < int(all) {
		fields = append(fields, audienceField)
		f.audiences = make([][]byte, len(audiences))
		for i, a := range audiences {
			f.audiences[i] = []byte(a.String())
		}
	}
	if q.From != nil {
		if outside, err := holds(reader, "", day(*q.From)); err != nil {
			return nil, err
		} else if outside {
			f.from = []byte(day(*q.From))
		}
	}
	if q.To != nil {
		if outside, err := holds(reader, day(*q.To), ""); err != nil {
			return nil, err
		} else if outside {
			f.to = []byte(day(*q.To))
		}
	}
	if f.from != nil || f.to != nil {
		fields = append(fields, dayField)
	}
	if len(fields) > 0 {
		if f.values, err = reader.DocValueReader(fields); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// holds says whether there is a day behind after and before before; "" is open.
func holds(reader index.IndexReader, after, before string) (bool, error) {
	var start, end []byte
	if after != "" {
		start = []byte(after)
	}
	if before != "" {
		end = []byte(before)
	}
	dict, err := reader.FieldDictRange(dayField, start, end)
	if err != nil {
		return false, err
	}
	found := false
	for range 2 { // the bound itself may be there
		entry, err := dict.Next()
		if err != nil {
			return false, errors.Join(err, dict.Close())
		}
		if entry == nil {
			break
		}
		if entry.Term != after && entry.Term != before {
			found = true
			break
		}
	}
	return found, dict.Close()
}

func (f *filter) passes(id uint64) (bool, error) {
	if f.values == nil {
		return true, nil
	}
	audience, window := f.audiences == nil, true
	err := f.values.VisitDocValues(index.NewIndexInternalID(nil, id), func(field string, term []byte) {
		switch field {
		case audienceField:
			for _, a := range f.audiences {
				audience = audience || bytes.Equal(a, term)
			}
		case dayField:
			if f.from != nil && bytes.Compare(term, f.from) < 0 || f.to != nil && bytes.Compare(term, f.to) > 0 {
				window = false
			}
		}
	})
	return audience && window, err
}
