package bleve

import (
	"hash/maphash"
	"slices"
	"sync"

	segment "github.com/blevesearch/scorch_segment_api/v2"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// heldTerms are the terms of a part that searches read in a segment. They are kept for the next search: to find a term
// in a dictionary and to unpack its list takes longer than most searches in it.
type heldTerms struct {
	mu sync.Mutex
	// recent are the terms that were read or asked for since it was last empty, earlier those before. size is that of
	// recent; at the bound, recent becomes earlier.
	recent, earlier map[string]*heldTerm
	size            int
	// asked are hashes of terms that were read but are not held: one that is asked for again is held from then on.
	asked [askedTerms]uint16
	// lacking are what the stems of a language of a project begin with, and whether the segment has none.
	lacking map[string]bool
	// parts are the documents of the part by their marker, those of one project each.
	parts map[string]*docList
}

// heldTerm is the lists of a term in the text and the label, nil where it has no documents.
type heldTerm struct {
	// repeated are those of texts that contain the term several times.
	texts, repeated, labels *docList
	impacts                 impacts
}

// The bounds on what a segment keeps: languages and projects, and for recent and earlier terms each, bytes.
const (
	maxLanguages      = 4096
	maxParts          = 256
	heldBytes         = 1 << 17
	heldDocumentBytes = 8
	heldTermBytes     = 100 // of a term without documents
	askedTerms        = 1 << 12
)

// get returns a term if it is held. The caller holds mu.
func (h *heldTerms) get(term string, documents uint64) *heldTerm {
	if t := h.recent[term]; t != nil {
		return t
	}
	t := h.earlier[term]
	if t != nil {
		h.put(term, t, documents)
	}
	return t
}

// put holds a term of a segment with a number of documents. The caller holds mu.
func (h *heldTerms) put(term string, t *heldTerm, documents uint64) {
	if h.recent == nil || h.size > heldBytes+heldDocumentBytes*int(documents) {
		h.recent, h.earlier, h.size = make(map[string]*heldTerm), h.recent, 0
	}
	if h.recent[term] == nil {
		h.recent[term] = t
		h.size += heldTermBytes + len(term) + t.texts.size() + t.repeated.size() + t.labels.size()
	}
}

// isAskedAgain reports whether a term was asked for lately, and notes it. The caller holds mu.
func (h *heldTerms) isAskedAgain(term string) bool {
	hash := maphash.String(seed, term)
	at, mark := &h.asked[hash%askedTerms], uint16(hash>>48)
	if *at == mark {
		return true
	}
	*at = mark
	return false
}

// seed is of the hashes of this process.
var seed = maphash.MakeSeed()

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

// termReader reads terms of a part in one segment.
type termReader struct {
	in   *searchedSegment
	part recallindex.Part
	held *heldTerms
	// documents is how many the segment has.
	documents uint64
	// The rest is opened when a term is not held.
	opened                bool
	text, repeated, label segment.TermDictionary
	lengths               *lengths
	lists                 listReader
	key                   []byte
}

func (s *search) newReader(in *searchedSegment, part recallindex.Part) *termReader {
	return &termReader{in: in, part: part, held: in.column.heldOf(part), documents: in.Segment().Count()}
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
	if r.part == recallindex.Sources {
		if r.label, err = s.Dictionary(labelField); err != nil {
			return err
		}
	}
	if r.repeated, err = s.Dictionary(repeatedOf(r.part)); err != nil {
		return err
	}
	r.lengths, err = r.in.column.lengthsOf(s)
	return err
}

// terms returns the terms of the segment, nil for those in a language that it lacks.
func (r *termReader) terms(terms, prefixes []string, of languages) ([]*heldTerm, error) {
	lacking, err := r.lacking(prefixes)
	if err != nil {
		return nil, err
	}
	isLacking := func(term int) bool { return of.of[term] >= 0 && lacking[of.of[term]] }
	found, missing := make([]*heldTerm, len(terms)), make([]int, 0, len(terms))
	r.held.mu.Lock()
	for i, term := range terms {
		if isLacking(i) {
			continue
		}
		if found[i] = r.held.get(term, r.documents); found[i] == nil {
			missing = append(missing, i)
		}
	}
	r.held.mu.Unlock()
	if len(missing) == 0 {
		return found, nil
	}
	for _, i := range missing {
		if found[i], err = r.read(terms[i]); err != nil {
			return nil, err
		}
	}
	r.held.mu.Lock()
	defer r.held.mu.Unlock()
	for _, i := range missing {
		if r.held.isAskedAgain(terms[i]) {
			r.held.put(terms[i], found[i], r.documents)
		}
	}
	return found, nil
}

// lacking reports for languages of a project, by what their stems begin with, whether the segment has no such stems.
func (r *termReader) lacking(prefixes []string) ([]bool, error) {
	lacking, unknown := make([]bool, len(prefixes)), []int(nil)
	r.held.mu.Lock()
	for i, prefix := range prefixes {
		known := false
		if lacking[i], known = r.held.lacking[prefix]; !known {
			unknown = append(unknown, i)
		}
	}
	r.held.mu.Unlock()
	if len(unknown) == 0 {
		return lacking, nil
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	for _, i := range unknown {
		lacking[i] = true
		for _, dict := range []segment.TermDictionary{r.text, r.label} {
			if dict == nil {
				continue
			}
			first, err := dict.AutomatonIterator(nil, []byte(prefixes[i]), []byte(prefixes[i]+"\xff")).Next()
			if err != nil {
				return nil, err
			}
			lacking[i] = lacking[i] && first == nil
		}
	}
	r.held.mu.Lock()
	defer r.held.mu.Unlock()
	if r.held.lacking == nil || len(r.held.lacking) >= maxLanguages {
		r.held.lacking = make(map[string]bool)
	}
	for _, i := range unknown {
		r.held.lacking[prefixes[i]] = lacking[i]
	}
	return lacking, nil
}

// absent is a term without documents.
var absent = new(heldTerm)

// read reads a term.
func (r *termReader) read(term string) (_ *heldTerm, err error) {
	if err := r.open(); err != nil {
		return nil, err
	}
	var t heldTerm
	r.key = append(r.key[:0], term...)
	if t.texts, err = r.lists.read(r.text, r.key, r.documents); err != nil {
		return nil, err
	}
	if t.texts != nil {
		if t.repeated, err = r.lists.readRepeats(r.repeated, r.key, r.documents); err != nil {
			return nil, err
		}
		t.impacts = impactsOf(t.texts, t.repeated, r.lengths)
	}
	if r.label != nil {
		if t.labels, err = r.lists.read(r.label, r.key, r.documents); err != nil {
			return nil, err
		}
	}
	if t.texts == nil && t.labels == nil {
		return absent, nil
	}
	return &t, nil
}

// ofPart returns the documents of the part.
func (r *termReader) ofPart() (*docList, error) {
	marker := r.in.at.marker(r.part)
	r.held.mu.Lock()
	found, known := r.held.parts[string(marker)]
	r.held.mu.Unlock()
	if known {
		return found, nil
	}
	parts, err := r.in.Segment().Dictionary(partField)
	if err != nil {
		return nil, err
	}
	if found, err = r.lists.read(parts, marker, r.documents); err != nil {
		return nil, err
	}
	r.held.mu.Lock()
	defer r.held.mu.Unlock()
	if r.held.parts == nil || len(r.held.parts) >= maxParts {
		r.held.parts = make(map[string]*docList)
	}
	r.held.parts[string(marker)] = found
	return found, nil
}
