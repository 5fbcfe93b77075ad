package fields

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/annals-project/annals/domain/limit"
)

// DataPoint is a data point as sent. Nil means omitted.
type DataPoint struct {
	Content   string
	ID        *string
	Label     *string
	Timestamp *time.Time
	// Metadata is the JSON as sent: "null" if the caller sent null.
	Metadata json.RawMessage
	// Audience is a slug; nil or "project" means project-visible.
	Audience *string
	Identity *string
	// Private means that Identity alone may read it. Then Audience is nil. Other payloads have the same fingerprint with
	// this field as without it.
	Private bool `json:",omitempty"`
}

// DataPointNames are the names of the fields of a data point.
var DataPointNames = NewNames("content", "id", "label", "timestamp", "metadata", "audience", "identity",
	"private").
	WithForeign("userid", "no such field: did you mean identity (whose text it is) or audience (who may read it)?").
	WithForeign("agentid", "no such field: did you mean identity (whose text it is)?").
	WithForeign("groupid", "no such field: did you mean audience (who may read it)?").
	WithForeign("scope", "no such field: did you mean audience (who may read it)?").
	WithForeign("runid", "no such field: did you mean metadata, which recall returns?").
	WithForeign("tags", "no such field: did you mean metadata, which recall returns?")

// DataPointOf reads a data point for Decode. It checks the fields against their limits, except the size of the
// content.
func DataPointOf(f Object) (DataPoint, error) {
	in := DataPoint{
		ID:        f.Name("id", 1, limit.SourceID),
		Label:     f.Name("label", 0, limit.Label),
		Timestamp: f.Instant("timestamp"),
		Audience:  f.Text("audience"),
		Identity:  f.Name("identity", 1, limit.Identity),
	}
	if private := f.Boolean("private"); private != nil && *private {
		in.Private = true
		switch {
		case in.Audience != nil:
			f.Problem("private", "excludes an audience")
		case !f.Has("identity"):
			f.Problem("private", "needs the identity that may read it")
		}
	}
	content := f.Text("content")
	switch {
	case content != nil:
		in.Content = *content
		if strings.TrimSpace(in.Content) == "" {
			f.Problem("content", "is empty or white space")
		}
	case !f.Has("content"):
		f.Problem("content", "is required")
	}
	metadata := f.Raw("metadata")
	if len(metadata) > limit.MetadataBytes {
		f.Problem("metadata", "has %d bytes of JSON: want at most %d", len(metadata), limit.MetadataBytes)
	}
	// A copy, so that a small piece of metadata does not keep a big body in memory.
	in.Metadata = bytes.Clone(metadata)
	return in, nil
}
