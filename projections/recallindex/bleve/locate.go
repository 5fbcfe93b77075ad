package bleve

import (
	"errors"
	"fmt"
	"slices"

	"github.com/blevesearch/bleve/v2/index/scorch"
	segment "github.com/blevesearch/scorch_segment_api/v2"
	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

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
