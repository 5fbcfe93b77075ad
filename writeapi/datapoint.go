package writeapi

import (
	"bytes"
	"strings"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/httpx"
)

// dataPointFields are the names of the fields of a data point.
var dataPointFields = []string{"content", "id", "label", "timestamp", "metadata", "audience", "identity"}

// dataPointOf checks the fields of a data point against their limits, except the size of its
// content.
func dataPointOf(f httpx.Fields, problems *httpx.Problems) commands.DataPoint {
	in := commands.DataPoint{
		ID:        f.Name("id", 1, limit.SourceID),
		Label:     f.Name("label", 0, limit.Label),
		Timestamp: f.Instant("timestamp"),
		Audience:  f.Text("audience"),
		Identity:  f.Name("identity", 1, limit.Identity),
	}
	content := f.Text("content")
	switch {
	case content != nil:
		in.Content = *content
		if strings.TrimSpace(in.Content) == "" {
			problems.Add(f.Path("content"), "is empty or white space")
		}
	case !f.Has("content"):
		problems.Add(f.Path("content"), "is required")
	}
	metadata := f.Raw("metadata")
	if len(metadata) > limit.MetadataBytes {
		problems.Add(f.Path("metadata"), "has %d bytes of JSON: want at most %d", len(metadata), limit.MetadataBytes)
	}
	// A copy, so that a small piece of metadata does not keep a big body in memory.
	in.Metadata = bytes.Clone(metadata)
	return in
}

// checkSize refuses content over the limit; bytes is its size in UTF-8.
func checkSize(what string, size int) error {
	if size <= limit.ContentBytes {
		return nil
	}
	return fault.New(fault.TooLarge, fault.CodeContentTooLarge,
		"%s has %d bytes in UTF-8: want at most %d", what, size, limit.ContentBytes).
		With("limitBytes", limit.ContentBytes).With("bytes", size)
}
