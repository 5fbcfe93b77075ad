package eventstore

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/annals-project/annals/domain/stream"
)

// metadataPrefix begins the name of the stream that holds the metadata of another one.
const metadataPrefix = "$$"

// MetadataWritten is the decoded event that metadata of a stream of ours was written, which may hide events of it. The
// service writes it to truncate an identity and to restore a stream; everything else is somebody else's.
type MetadataWritten struct {
	// Stream is the one that the metadata is of.
	Stream string
	// TruncatedBefore is the revision before which events are hidden, 0 for none, SoftDeleted for all.
	TruncatedBefore Revision
	// Aged and Counted report that the store hides events by their age, and more than a number of them.
	Aged, Counted bool
}

// SoftDeleted is MetadataWritten.TruncatedBefore of a stream that was soft-deleted.
const SoftDeleted Revision = math.MaxInt64

func (MetadataWritten) EventType() string { return MetadataType }

// MetadataOf decodes the metadata of a stream of ours. ok is false for another event. Fields that a store would not
// take for a limit are none.
func MetadataOf(r Recorded) (m *MetadataWritten, ok bool) {
	name, found := strings.CutPrefix(r.Stream, metadataPrefix)
	if r.Type != MetadataType || !found || !stream.IsOurs(name) {
		return nil, false
	}
	var fields struct {
		TruncatedBefore json.Number     `json:"$tb"`
		MaxAge          json.RawMessage `json:"$maxAge"`
		MaxCount        json.RawMessage `json:"$maxCount"`
	}
	m = &MetadataWritten{Stream: name}
	if json.Unmarshal(r.Data, &fields) != nil {
		return m, true
	}
	if before, err := fields.TruncatedBefore.Int64(); err == nil {
		m.TruncatedBefore = Revision(before)
	}
	m.Aged, m.Counted = isSet(fields.MaxAge), isSet(fields.MaxCount)
	return m, true
}

func isSet(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }
