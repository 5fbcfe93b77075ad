package bleve

import (
	"context"
	"errors"
	"math"

	index "github.com/blevesearch/bleve_index_api"

	"github.com/annals-project/annals/domain/recall"
)

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
