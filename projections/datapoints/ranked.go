package datapoints

import (
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/recall"
)

// ranked is what recall ranks a data point by, of its newest revision. It is in the row that recall looks up anyway, so
// that recall reads no text of what it does not show. It depends on the analysis of recall: raise the version of the
// projection with that.
type ranked struct {
	label *string
	// size and metadataSize are in bytes. blob is where the content is, nil if it is with the revision; tokens is nil of
	// one in a blob, which is not counted here.
	size, metadataSize int64
	blob               *blob.Ref
	tokens             *int32
	// traits and what it states are those of a short content, 0 of another.
	traits       int16
	stems, exact int64
}

// rankedOf returns what a revision is ranked by.
func rankedOf(e *datapoint.RevisionAccepted) ranked {
	r := ranked{label: e.Effect.Label, size: sizeOf(&e.Content), metadataSize: sizeOf(e.Metadata), blob: e.Content.Blob}
	if r.blob != nil {
		return r
	}
	text := e.Content.Inline
	tokens := int32(recall.Tokens(text))
	r.tokens = &tokens
	if len(text) <= recall.StatedText {
		states := recall.Shared().States(text)
		r.traits, r.stems, r.exact = int16(recall.TraitsOf(text)), int64(states.Stems), int64(states.Exact)
	}
	return r
}

// sizeOf returns the bytes of a text, 0 of none.
func sizeOf(t *datapoint.Text) int64 {
	switch {
	case t == nil:
		return 0
	case t.Blob != nil:
		return t.Blob.Size
	default:
		return int64(len(t.Inline))
	}
}

// pointersOf encodes where the contents are as JSON, nil for those in rows.
func pointersOf(rows []*dataPointRow) ([]*string, error) {
	pointers := make([]*string, len(rows))
	for n, d := range rows {
		if d.blob == nil {
			continue
		}
		var err error
		if pointers[n], err = encode(*d.blob); err != nil {
			return nil, err
		}
	}
	return pointers, nil
}
