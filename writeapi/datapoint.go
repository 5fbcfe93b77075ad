package writeapi

import (
	"bytes"
	"strings"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/httpx"
)

// dataPointFields are the names of the fields of a data point.
var dataPointFields = []string{"content", "id", "label", "timestamp", "metadata", "audience", "identity"}

// dataPointOf checks the fields of a data point against the limits, but for the size of its content.
func dataPointOf(f httpx.Fields, problems *httpx.Problems) commands.DataPoint {
	in := commands.DataPoint{
		ID:        f.Name("id", 1, maxSourceID),
		Label:     f.Name("label", 0, maxLabel),
		Timestamp: f.Instant("timestamp"),
		Audience:  f.Text("audience"),
		Identity:  f.Name("identity", 1, maxIdentity),
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
	if len(metadata) > maxMetadata {
		problems.Add(f.Path("metadata"), "has %d bytes of JSON: want at most %d", len(metadata), maxMetadata)
	}
	// A copy, so that a small piece of metadata does not keep a big body in memory.
	in.Metadata = bytes.Clone(metadata)
	return in
}

// checkSize refuses content over the limit; bytes is its size in UTF-8.
func checkSize(what string, size int) error {
	if size <= maxContent {
		return nil
	}
	return fault.New(fault.TooLarge, fault.CodeContentTooLarge, "%s has %d bytes in UTF-8: want at most %d", what, size, maxContent).
		With("limitBytes", maxContent).With("bytes", size)
}
