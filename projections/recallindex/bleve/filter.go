package bleve

import (
	"bytes"
	"context"
	"errors"
	"slices"

	index "github.com/blevesearch/bleve_index_api"
	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

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
		if reached += n; reached >= int(all) {
			break
		}
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
