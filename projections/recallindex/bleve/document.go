package bleve

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/blevesearch/bleve/v2/document"
	"github.com/blevesearch/bleve/v2/index/scorch"
	index "github.com/blevesearch/bleve_index_api"
	segment "github.com/blevesearch/scorch_segment_api/v2"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// The fields of a document. Texts of sources and of memories are two fields, so that each part has
// separate frequencies. Terms of part, text and label begin with the prefix of the partition; those
// of the other fields are columns without it.
const (
	partField     = "p"
	audienceField = "a"
	dayField      = "d"
	textField     = "t"
	memoryField   = "m"
	labelField    = "l"
	traitsField   = "x"
	lengthField   = "n"
	// The terms that a text contains several times are in a separate field with their frequencies. In the
	// text field a term of a document costs one byte and its place in the list, and most occur once.
	repeatedTextField   = "tr"
	repeatedMemoryField = "mr"
	// ownerField names the data point of a later passage, so that the thousands of passages of a long
	// text are found by one term.
	ownerField = "o"
)

// textOf returns the field that holds the text of a part.
func textOf(part recallindex.Part) string {
	if part == recallindex.Memories {
		return memoryField
	}
	return textField
}

// repeatedOf returns the field that holds the frequencies of the repeated terms of a part.
func repeatedOf(part recallindex.Part) string {
	if part == recallindex.Memories {
		return repeatedMemoryField
	}
	return repeatedTextField
}

const (
	countedTerms  = index.IndexField
	distinctTerms = index.IndexField | index.SkipFreqNorm
)

// columnFields are the fields with one term, which many documents of a batch have alike, by name and term.
type columnFields map[[2]string]*terms

// of returns the field with a term. It is analysed already, since several goroutines of Bleve may hold it.
func (c columnFields) of(name, term string) *terms {
	key := [2]string{name, term}
	f := c[key]
	if f == nil {
		f = &terms{name: name, terms: []string{term}, options: distinctTerms}
		f.Analyze()
		c[key] = f
	}
	return f
}

// newDocument returns a document. The frequency of the term of its part is its order.
func newDocument(columns columnFields, at partition, d recallindex.Document) *document.Document {
	part := d.Part()
	doc := document.NewDocument(at.identifier(d.Key))
	doc.AddField(&terms{
		name: partField, prefix: at.prefix, terms: []string{string(part)}, options: countedTerms,
		frequency: int(d.Order()),
	})
	doc.AddField(columns.of(audienceField, d.Audience.String()))
	doc.AddField(columns.of(dayField, day(d.OccurredAt)))
	doc.AddField(columns.of(traitsField, strconv.FormatUint(uint64(d.Terms.Traits), 16)))
	if later(d.Key) {
		doc.AddField(&terms{name: ownerField, terms: []string{at.owner(d.DataPoint)}, options: distinctTerms})
	}
	addText(doc, columns, at, part, d.Terms.Text)
	if len(d.Terms.Label) > 0 {
		doc.AddField(&terms{name: labelField, prefix: at.prefix, terms: d.Terms.Label, options: distinctTerms})
	}
	return doc
}

// addText adds the terms of a text, those of them that are repeated, and the length of the text.
func addText(doc *document.Document, columns columnFields, at partition, part recallindex.Part, text []string) {
	doc.AddField(columns.of(lengthField, strconv.FormatUint(uint64(len(text)), 16)))
	if len(text) == 0 {
		return
	}
	field := &terms{name: textOf(part), prefix: at.prefix, terms: text, options: distinctTerms}
	field.Analyze()
	doc.AddField(field)
	if len(field.repeated) > 0 {
		doc.AddField(&terms{name: repeatedOf(part), prefix: at.prefix, terms: field.repeated, options: countedTerms})
	}
}

// day returns the day of an instant in eight digits that sort by time. It is text, since the engine
// separates terms by a byte that text never contains.
func day(at time.Time) string { return fmt.Sprintf("%08x", days(at)+dayZero) }

// dayZero is added to days so that those before 1970 are not negative.
const dayZero = 1 << 30

// days returns the day of an instant, in days since 1970 in UTC.
func days(at time.Time) int {
	const seconds = 24 * 60 * 60
	unix := at.Unix()
	if unix < 0 {
		unix -= seconds - 1
	}
	return int(unix / seconds)
}

// parseTraits reads what newDocument wrote.
func parseTraits(term string) (recall.Traits, error) {
	n, err := strconv.ParseUint(term, 16, 8)
	if err != nil {
		return 0, fmt.Errorf("traits %q are unreadable: %w", term, err)
	}
	return recall.Traits(n), nil
}

// The kinds of a document in its id, in the order of ids, and what ends its revision. All but the
// last are found by ids, which begin with the name of the data point.
const (
	memoryKind  = 'm'
	passageKind = 'p'
	laterKind   = 'q'
	revisionEnd = ':'
)

// firstPassages is how many passages of a revision are found by their ids. Most revisions have no
// more, and an owner term in each would cost space.
const firstPassages = 16

// later reports whether a document has an owner term.
func later(k recallindex.Key) bool { return k.Memory == uuid.Nil && k.N >= firstPassages }

func encode(id uuid.UUID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// identifier returns the id of a document: data point, kind, revision, and passage or memory.
func (p partition) identifier(k recallindex.Key) string {
	kind, last := byte(passageKind), strconv.Itoa(k.N)
	switch {
	case k.Memory != uuid.Nil:
		kind, last = memoryKind, encode(k.Memory)
	case later(k):
		kind = laterKind
	}
	return p.owner(k.DataPoint) + string(kind) + strconv.Itoa(k.Revision) + string(revisionEnd) + last
}

// idLength is the length of a UUID as text.
const idLength = 22

// key parses what identifier returned.
func (p partition) key(id []byte) (k recallindex.Key, err error) {
	rest, ok := bytes.CutPrefix(id, []byte(p.prefix))
	if !ok || len(rest) <= idLength {
		return recallindex.Key{}, fmt.Errorf("document id %q is unreadable", id)
	}
	kind := rest[idLength]
	revision, last, ok := bytes.Cut(rest[idLength+1:], []byte{revisionEnd})
	if !ok {
		return recallindex.Key{}, fmt.Errorf("document id %q is unreadable", id)
	}
	err = parseID(&k.DataPoint, rest[:idLength])
	if err == nil {
		k.Revision, err = strconv.Atoi(string(revision))
	}
	switch {
	case err != nil:
	case kind == memoryKind:
		err = parseID(&k.Memory, last)
	case kind == passageKind || kind == laterKind:
		k.N, err = strconv.Atoi(string(last))
	default:
		err = fmt.Errorf("kind %q", kind)
	}
	if err != nil {
		return recallindex.Key{}, fmt.Errorf("document id %q is unreadable: %w", id, err)
	}
	return k, nil
}

func parseID(id *uuid.UUID, text []byte) error {
	if len(text) != idLength {
		return fmt.Errorf("%d characters, want %d", len(text), idLength)
	}
	_, err := base64.RawURLEncoding.Decode(id[:], text)
	return err
}

// terms is a field whose text is analysed already: it returns its terms as they are, after a
// prefix.
type terms struct {
	name        string
	prefix      string
	terms       []string
	options     index.FieldIndexingOptions
	frequencies index.TokenFrequencies
	// frequency is that of each term; 0 for how often it is in terms.
	frequency int
	// repeated are the terms that Analyze found several times, each as often, in a field without frequencies.
	repeated []string
}

var _ document.Field = (*terms)(nil)

func (f *terms) Name() string                                     { return f.name }
func (f *terms) ArrayPositions() []uint64                         { return nil }
func (f *terms) Options() index.FieldIndexingOptions              { return f.options }
func (f *terms) Value() []byte                                    { return nil }
func (f *terms) EncodedFieldType() byte                           { return 't' }
func (f *terms) AnalyzedLength() int                              { return len(f.terms) }
func (f *terms) AnalyzedTokenFrequencies() index.TokenFrequencies { return f.frequencies }

func (f *terms) NumPlainTextBytes() uint64 {
	n := len(f.prefix) * len(f.terms)
	for _, t := range f.terms {
		n += len(t)
	}
	return uint64(n)
}

func (f *terms) Size() int { return int(f.NumPlainTextBytes()) + 24*len(f.terms) }

// Analyze implements document.Field. It allocates a few blocks of memory, however many terms there
// are. It does nothing the second time.
func (f *terms) Analyze() {
	if f.frequencies != nil {
		return
	}
	f.frequencies = make(index.TokenFrequencies, len(f.terms))
	text := make([]byte, 0, f.NumPlainTextBytes())
	for _, t := range f.terms {
		text = append(append(text, f.prefix...), t...)
	}
	keys, list := string(text), make([]index.TokenFreq, 0, len(f.terms))
	for start, i := 0, 0; i < len(f.terms); i++ {
		end := start + len(f.prefix) + len(f.terms[i])
		frequency := f.frequencies[keys[start:end]]
		isNew := frequency == nil
		if isNew {
			list = append(list, index.TokenFreq{Term: text[start:end:end]})
			frequency = &list[len(list)-1]
			f.frequencies[keys[start:end]] = frequency
		}
		switch {
		case f.options.SkipFreqNorm():
			if isNew {
				break
			}
			if frequency.Frequency() == 0 { // the second time
				frequency.SetFrequency(1)
				f.repeated = append(f.repeated, f.terms[i])
			}
			f.repeated = append(f.repeated, f.terms[i])
		case f.frequency > 0:
			frequency.SetFrequency(f.frequency)
		default:
			frequency.SetFrequency(frequency.Frequency() + 1)
		}
		start = end
	}
	if len(f.repeated) > 0 {
		for i := range list {
			list[i].SetFrequency(0)
		}
	}
}

// withSegments calls look with the current segments of an index.
func (h *handle) withSegments(look func(segments []*scorch.SegmentSnapshot) error) (err error) {
	engine, err := h.index.Advanced()
	if err != nil {
		return err
	}
	reader, err := engine.Reader()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	snapshot, ok := reader.(*scorch.IndexSnapshot)
	if !ok {
		return fmt.Errorf("unexpected index %T", reader)
	}
	return look(snapshot.Segments())
}

// idField is the field in which Bleve keeps the id of a document.
const idField = "_id"

// owners finds the documents of data points in one segment.
type owners struct {
	ids, later segment.TermDictionary
	postings   segment.PostingsList
	docs       segment.PostingsIterator
}

func ownersIn(s segment.Segment) (o *owners, err error) {
	o = new(owners)
	if o.ids, err = s.Dictionary(idField); err != nil {
		return nil, err
	}
	o.later, err = s.Dictionary(ownerField)
	return o, err
}

// each calls fn with every document of an owner, deleted ones too.
func (o *owners) each(owner string, fn func(doc uint64) error) error {
	first := o.ids.AutomatonIterator(nil, []byte(owner), []byte(owner+string(laterKind)))
	for {
		entry, err := first.Next()
		if err != nil {
			return err
		}
		if entry == nil {
			break
		}
		if err := o.eachOfTerm(o.ids, entry.Term, fn); err != nil {
			return err
		}
	}
	if o.later.Cardinality() == 0 {
		return nil
	}
	return o.eachOfTerm(o.later, owner, fn)
}

// eachOfTerm calls fn with every document of a term.
func (o *owners) eachOfTerm(dict segment.TermDictionary, term string, fn func(doc uint64) error) (err error) {
	if o.postings, err = dict.PostingsList([]byte(term), nil, o.postings); err != nil {
		return err
	}
	o.docs = o.postings.Iterator(false, false, false, o.docs)
	for {
		doc, err := o.docs.Next()
		if err != nil || doc == nil {
			return err
		}
		if err := fn(doc.Number()); err != nil {
			return err
		}
	}
}

// isLive reports whether a document of a segment is not deleted.
func isLive(s *scorch.SegmentSnapshot, doc uint64) bool {
	return s.Deleted() == nil || !s.Deleted().Contains(uint32(doc))
}

// idsOf returns the ids of the documents of scopes.
func (h *handle) idsOf(at partition, scopes []recallindex.Scope) (ids []string, err error) {
	if len(scopes) == 0 {
		return nil, nil
	}
	wanted := make(map[uuid.UUID][]recallindex.Scope, len(scopes))
	for _, s := range scopes {
		wanted[s.DataPoint] = append(wanted[s.DataPoint], s)
	}
	err = h.withSegments(func(segments []*scorch.SegmentSnapshot) error {
		for _, s := range segments {
			owners, err := ownersIn(s.Segment())
			if err != nil {
				return err
			}
			for point, scopes := range wanted {
				err := owners.each(at.owner(point), func(doc uint64) error {
					if !isLive(s, doc) {
						return nil
					}
					id, err := s.Segment().DocID(doc)
					if err != nil {
						return err
					}
					k, err := at.key(id)
					if slices.Contains(scopes, recallindex.Scope{DataPoint: k.DataPoint, Part: k.Part(), Revision: k.Revision}) {
						ids = append(ids, string(id))
					}
					return err
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	return ids, err
}

// errFound ends an iteration.
var errFound = errors.New("found")

// hasLiveDocument reports whether a segment has a live document of a data point.
func hasLiveDocument(s *scorch.SegmentSnapshot, owner moveKey) (bool, error) {
	owners, err := ownersIn(s.Segment())
	if err == nil {
		err = owners.each(string(owner), func(doc uint64) error {
			if isLive(s, doc) {
				return errFound
			}
			return nil
		})
	}
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, err
}

// idsIn returns the ids of all documents of a project in a shared slot, and their data points.
func (h *handle) idsIn(at partition) (ids []string, points map[uuid.UUID]struct{}, err error) {
	points = map[uuid.UUID]struct{}{}
	err = h.withSegments(func(segments []*scorch.SegmentSnapshot) error {
		for _, s := range segments {
			for _, part := range []recallindex.Part{recallindex.Sources, recallindex.Memories} {
				parts, err := s.Segment().Dictionary(partField)
				if err != nil {
					return err
				}
				err = new(owners).eachOfTerm(parts, string(at.marker(part)), func(doc uint64) error {
					if !isLive(s, doc) {
						return nil
					}
					id, err := s.Segment().DocID(doc)
					if err != nil {
						return err
					}
					k, err := at.key(id)
					ids, points[k.DataPoint] = append(ids, string(id)), struct{}{}
					return err
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	return ids, points, err
}

// present returns those of some ids whose documents exist.
func (h *handle) present(ids []string) (found []string, err error) {
	err = h.withSegments(func(segments []*scorch.SegmentSnapshot) error {
		for _, s := range segments {
			docs, err := s.Segment().DocNumbers(ids)
			if err != nil {
				return err
			}
			if s.Deleted() != nil {
				docs.AndNot(s.Deleted())
			}
			for _, doc := range docs.ToArray() {
				id, err := s.Segment().DocID(uint64(doc))
				if err != nil {
					return err
				}
				found = append(found, string(id))
			}
		}
		return nil
	})
	return found, err
}

// count returns how many documents of a part a partition holds.
func count(segments []*scorch.SegmentSnapshot, at partition, part recallindex.Part) (n int, err error) {
	for _, s := range segments {
		parts, err := s.Segment().Dictionary(partField)
		if err != nil {
			return 0, err
		}
		docs, err := parts.PostingsList(at.marker(part), s.Deleted(), nil)
		if err != nil {
			return 0, err
		}
		n += int(docs.Count())
	}
	return n, nil
}
