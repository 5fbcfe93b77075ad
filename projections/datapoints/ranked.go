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
	Label *string `db:"label"`
	// Size and MetadataSize are in bytes. ContentBlob is where the content is, nil if it is with the revision; Tokens is
	// nil of one in a blob, which is not counted here.
	Size         int64     `db:"size"`
	MetadataSize int64     `db:"metadata_size"`
	ContentBlob  *blob.Ref `db:"content_blob"`
	Tokens       *int32    `db:"tokens"`
	// Traits and what the content states are those of a short content, 0 of another.
	Traits int16 `db:"traits"`
	Stems  int64 `db:"stems"`
	Exact  int64 `db:"exact"`
	// Outline shows whether a short content can be on the same thing as another one.
	Outline int64 `db:"outline"`
	// Conversation is the key of the conversation that the metadata name, 0 for none.
	Conversation int64 `db:"conversation"`
}

// rankedOf returns what a revision is ranked by, with the tokens of its content.
func rankedOf(e *datapoint.RevisionAccepted, tokens *int32) ranked {
	r := ranked{
		Label: e.Effect.Label, Size: sizeOf(&e.Content), MetadataSize: sizeOf(e.Metadata), ContentBlob: e.Content.Blob,
		Tokens: tokens,
	}
	if text := e.Content.Inline; r.ContentBlob == nil && len(text) <= recall.StatedText {
		states, outline := recall.Shared().States(text)
		r.Traits, r.Stems, r.Exact = int16(recall.TraitsOf(text)), int64(states.Stems), int64(states.Exact)
		r.Outline = int64(outline)
	}
	if e.Metadata != nil && e.Metadata.Blob == nil {
		r.Conversation = int64(recall.ConversationOf([]byte(e.Metadata.Inline)))
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
