// Package comprehend derives memories from one revision of one data point by a fixed English grammar, without a model.
//
// It reads what it is given and nothing else, and the same input gives the same memories on every machine and for ever.
// It would rather miss a memory than invent one: whatever a rule is not sure of is left to the verbatim source, which is
// recalled anyway. Beside the standard library and google/uuid it uses clipperhouse/uax29 (sentence boundaries) and
// kljensen/snowball (stems of what claims are compared by); both are pure functions over tables.
package comprehend

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/memory"
)

// Extractor names this grammar and its version in what is stored. A change that alters memories is a new version.
const Extractor = "builtin/2"

// Limits of one revision. They bound time and memory; what lies beyond them is in the source, verbatim.
const (
	// MaxMemories is how many memories one revision gives at most.
	MaxMemories = 2000
	// MemoriesPer10KiB is how many memories 10 KiB of content give at most on the average, with as many again for one dense
	// part. Content too long for that rate under MaxMemories gives them evenly from its beginning to its end.
	MemoriesPer10KiB = 64
	// MaxFromMetadata is how many memories label and metadata give at most, together.
	MaxFromMetadata = 64
	// MaxLine is the longest line of a memory, and MaxExcerpt the longest excerpt that label or metadata cite, in code points.
	MaxLine    = 300
	MaxExcerpt = 300
	// MaxRead is how much of a content is cut into sentences, in bytes. Of a longer one, evenly spread pieces of about 2 KiB are.
	MaxRead = 2 << 20
	// MaxSentence is the longest sentence that is read, in bytes. Longer ones are data, code or lists.
	MaxSentence = 800
	// MaxMetadata is the most metadata that is read, in bytes.
	MaxMetadata = 1 << 20
)

// Input is one revision of one data point.
type Input struct {
	DataPoint uuid.UUID
	Revision  int
	Content   string
	// Label, Metadata and Author are as sent; each may be empty, and metadata that is not JSON is ignored.
	Label    string
	Metadata json.RawMessage
	Author   string
	// OccurredAt is what date expressions are resolved against, read in UTC.
	OccurredAt time.Time
}

// Extract derives the memories of one revision: those of label and metadata first, then in the order of the content. The
// n-th has the id memory.ID(in.DataPoint, in.Revision, n), n from 0. It takes time linear in the input and never fails:
// input that it cannot read gives no memories.
func Extract(in Input) []memory.Memory {
	in.OccurredAt = instant.Truncate(in.OccurredAt)
	doc := newDocument(in)
	out := newCollector(len(in.Content))
	aside := allowance{rate: 0, left: MaxFromMetadata}
	readAside(doc, out, &aside)
	main := contentAllowance(len(in.Content))
	doc.eachSentence(func(s *sentence) bool {
		if main.at(s.start) {
			out.add(s, readSentence(doc, s), &main)
		}
		return len(out.drafts) < MaxMemories
	})
	return out.memories(in, datapoint.NodeID(in.DataPoint, in.Revision), doc.excerpt)
}
