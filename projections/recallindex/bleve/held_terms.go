package bleve

import (
	"slices"
	"sync"

	"github.com/blevesearch/bleve/v2/index/scorch"
	segment "github.com/blevesearch/scorch_segment_api/v2"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// heldTerms are the lists of terms that searches read in a segment. They are kept for the next search: to find a term
// in a dictionary and to unpack its list takes longer than most searches in it.
type heldTerms struct {
	mu sync.Mutex
	// recent are the terms that were read or asked for since it was last empty, earlier those before. size is that of
	// recent; at the bound, recent becomes earlier.
	recent, earlier map[heldKey]*heldTerm
	size            int
	// lacking are the languages of which it is known whether the segment has stems.
	lacking map[heldKey]bool
	deleted *deletions
}

// heldKey names a term, or what the stems of a language of a project begin with, in the fields of a part. The markers
// of parts are in the field of no part.
type heldKey struct {
	part recallindex.Part
	term string
}

// heldTerm is the lists of a term in the text and the label, nil where it has no documents.
type heldTerm struct {
	// repeated are those of texts that contain the term several times, or all of them in the former format.
	texts, repeated, labels *docList
	impacts                 impacts
}

// deletions are the deleted documents of a segment. There only come more, so that their count names them.
type deletions struct {
	count int
	bits  []uint64
}

// The bounds on what a segment keeps: languages, and for recent and earlier terms each, bytes.
const (
	maxLanguages      = 4096
	heldBytes         = 1 << 16
	heldDocumentBytes = 8
	heldTermBytes     = 200 // of a term without documents
)

// get returns a term if it is held. The caller holds mu.
func (h *heldTerms) get(key heldKey, documents uint64) *heldTerm {
	if t := h.recent[key]; t != nil {
		return t
	}
	t := h.earlier[key]
	if t != nil {
		h.put(key, t, documents)
	}
	return t
}

// put holds a term of a segment with a number of documents. The caller holds mu.
func (h *heldTerms) put(key heldKey, t *heldTerm, documents uint64) {
	if h.recent == nil || h.size > heldBytes+heldDocumentBytes*int(documents) {
		h.recent, h.earlier, h.size = make(map[heldKey]*heldTerm), h.recent, 0
	}
	if h.recent[key] == nil {
		h.recent[key] = t
		h.size += heldTermBytes + len(key.term) + t.texts.size() + t.repeated.size() + t.labels.size()
	}
}

// deletionsOf returns the deleted documents of a segment, nil if there are none.
func (h *heldTerms) deletionsOf(s *scorch.SegmentSnapshot) *deletions {
	if s.Deleted() == nil || s.Deleted().IsEmpty() {
		return nil
	}
	n := int(s.Deleted().GetCardinality())
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deleted == nil || h.deleted.count != n {
		h.deleted = &deletions{n, toBits(s.Deleted(), s.Segment().Count())}
	}
	return h.deleted
}

// languages are the languages of the stems of a question, which asks for those of several, while most projects have
// one.
type languages struct {
	// markers are what their stems begin with. of are the languages of the terms by place in markers, -1 for none.
	markers []string
	of      []int
}

func languagesOf(terms []recall.Term) languages {
	l := languages{of: make([]int, len(terms))}
	for i, t := range terms {
		l.of[i] = -1
		if marker, is := recall.LanguageMarker(t.Text); is && marker != t.Text {
			if l.of[i] = slices.Index(l.markers, marker); l.of[i] < 0 {
				l.of[i] = len(l.markers)
				l.markers = append(l.markers, marker)
			}
		}
	}
	return l
}

// termReader reads terms in one segment.
type termReader struct {
	in     *searchedSegment
	part   recallindex.Part
	format format
	// The dictionaries are opened when a term is not held.
	opened                bool
	text, repeated, label segment.TermDictionary
}

func (r *termReader) open() (err error) {
	if r.opened {
		return nil
	}
	r.opened = true
	s := r.in.Segment()
	if r.text, err = s.Dictionary(textOf(r.part)); err != nil {
		return err
	}
	if r.format != formerFormat {
		if r.repeated, err = s.Dictionary(repeatedOf(r.part)); err != nil {
			return err
		}
	}
	if r.part == recallindex.Sources {
		r.label, err = s.Dictionary(labelField)
	}
	return err
}

// terms returns the terms of the segment, nil for those in a language that it lacks.
func (r *termReader) terms(terms, prefixes []string, of languages) ([]*heldTerm, error) {
	held, documents := &r.in.column.held, r.in.Segment().Count()
	lacking := make([]bool, len(prefixes))
	for i, prefix := range prefixes {
		var err error
		if lacking[i], err = r.lacks(prefix); err != nil {
			return nil, err
		}
	}
	isLacking := func(term int) bool { return of.of[term] >= 0 && lacking[of.of[term]] }
	found := make([]*heldTerm, len(terms))
	held.mu.Lock()
	for i, term := range terms {
		if !isLacking(i) {
			found[i] = held.get(heldKey{r.part, term}, documents)
		}
	}
	held.mu.Unlock()
	for i, term := range terms {
		if found[i] != nil || isLacking(i) {
			continue
		}
		var err error
		if found[i], err = r.read(term); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// term returns one term.
func (r *termReader) term(term string) (*heldTerm, error) {
	held := &r.in.column.held
	held.mu.Lock()
	t := held.get(heldKey{r.part, term}, r.in.Segment().Count())
	held.mu.Unlock()
	if t != nil {
		return t, nil
	}
	return r.read(term)
}

// lacks reports whether the segment has no stems of a language of a project, which begin with a prefix.
func (r *termReader) lacks(prefix string) (bool, error) {
	held, key := &r.in.column.held, heldKey{r.part, prefix}
	held.mu.Lock()
	lacking, known := held.lacking[key]
	held.mu.Unlock()
	if known {
		return lacking, nil
	}
	if err := r.open(); err != nil {
		return false, err
	}
	lacking = true
	for _, dict := range []segment.TermDictionary{r.text, r.label} {
		if dict == nil {
			continue
		}
		first, err := dict.AutomatonIterator(nil, []byte(prefix), []byte(prefix+"\xff")).Next()
		if err != nil {
			return false, err
		}
		lacking = lacking && first == nil
	}
	held.mu.Lock()
	defer held.mu.Unlock()
	if held.lacking == nil || len(held.lacking) >= maxLanguages {
		held.lacking = make(map[heldKey]bool)
	}
	held.lacking[key] = lacking
	return lacking, nil
}

// read reads a term, and keeps it.
func (r *termReader) read(term string) (*heldTerm, error) {
	if err := r.open(); err != nil {
		return nil, err
	}
	t, documents := new(heldTerm), r.in.Segment().Count()
	postings, err := r.text.PostingsList([]byte(term), nil, nil)
	if err != nil {
		return nil, err
	}
	if t.texts, err = readList(postings, documents); err != nil {
		return nil, err
	}
	if t.texts != nil {
		if r.repeated != nil {
			if postings, err = r.repeated.PostingsList([]byte(term), nil, nil); err != nil {
				return nil, err
			}
		}
		if t.repeated, err = readFrequencyList(postings, documents, r.repeated == nil); err != nil {
			return nil, err
		}
	}
	if r.label != nil {
		if postings, err = r.label.PostingsList([]byte(term), nil, postings); err != nil {
			return nil, err
		}
		if t.labels, err = readList(postings, documents); err != nil {
			return nil, err
		}
	}
	var lengths *lengths
	if r.format != formerFormat {
		if lengths, err = r.in.column.lengthsOf(r.in.Segment()); err != nil {
			return nil, err
		}
	}
	t.impacts = impactsOf(t.texts, t.repeated, lengths)
	r.keep(heldKey{r.part, term}, t)
	return t, nil
}

func (r *termReader) keep(key heldKey, t *heldTerm) {
	held := &r.in.column.held
	held.mu.Lock()
	defer held.mu.Unlock()
	held.put(key, t, r.in.Segment().Count())
}

// documents returns the documents of the part.
func (r *termReader) documents() (*docList, error) {
	held, s := &r.in.column.held, r.in.Segment()
	marker := r.in.at.marker(r.part)
	key := heldKey{term: string(marker)}
	held.mu.Lock()
	t := held.get(key, s.Count())
	held.mu.Unlock()
	if t != nil {
		return t.texts, nil
	}
	parts, err := s.Dictionary(partField)
	if err != nil {
		return nil, err
	}
	postings, err := parts.PostingsList(marker, nil, nil)
	if err != nil {
		return nil, err
	}
	t = new(heldTerm)
	if t.texts, err = readList(postings, s.Count()); err != nil {
		return nil, err
	}
	r.keep(key, t)
	return t.texts, nil
}
