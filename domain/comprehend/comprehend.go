// Package comprehend derives memories from one revision of one data point with a fixed English
// grammar, without a model.
//
// The result depends on the input only: the same input yields the same memories on every machine,
// always. The grammar prefers missing a memory to inventing one: what no rule is sure of stays in
// the verbatim source, which is recalled anyway.
//
// Start with Extract. The content is cut into sentences (segment.go) and clauses (sentence.go,
// clause.go). Dates (dates*.go, anchor.go), instructions (rule*.go) and names (mention.go) are read
// from a sentence; claims (claim*.go), events (observation.go, extract_event.go), identities
// (extract_identity.go) and memberships (membership.go) from its clauses. third_person.go writes the
// line of a memory. Label and metadata are read by metadata*.go. The dates of questions are read by
// Periods (dates_question.go, dates_asked.go, dates_week.go).
//
// Besides the standard library and google/uuid it uses clipperhouse/uax29 (sentence boundaries) and
// kljensen/snowball (stems, to compare claims). Both are pure functions over tables.
package comprehend

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/memory"
)

// Extractor names this grammar and its version in stored events. A change that alters memories
// needs a new version.
const Extractor = "builtin/4"

// Limits of one revision. They limit time and memory; what exceeds them stays in the verbatim
// source.
const (
	// MaxMemories is the most memories of a revision.
	MaxMemories = 2000
	// MemoriesPer10KiB is the most memories of 10 KiB of content on average, with as many again for
	// one dense part. A content that would exceed MaxMemories at that rate yields them evenly from
	// beginning to end.
	MemoriesPer10KiB = 64
	// MaxMentions is the most mentions of a revision that state nothing of their name.
	MaxMentions = 2
	// MaxFromMetadata is the most memories of label and metadata together.
	MaxFromMetadata = 64
	// MaxLine is the longest line of a memory, and MaxExcerpt the longest excerpt of a memory from
	// label or metadata, in code points.
	MaxLine    = 300
	MaxExcerpt = 300
	// maxRead is the most bytes of a content that are cut into sentences. Of a longer one, evenly
	// spread pieces of about 2 KiB are.
	maxRead = 2 << 20
	// maxSentence is the longest sentence that is read, in bytes. Longer ones are data, code or
	// lists.
	maxSentence = 800
	// maxMetadata is the most bytes of metadata that are read.
	maxMetadata = 1 << 20
)

// Input is one revision of one data point.
type Input struct {
	DataPoint uuid.UUID
	Revision  int
	Content   string
	// Label, Metadata and Author are as sent; each may be empty, and metadata that is not JSON is
	// ignored.
	Label    string
	Metadata json.RawMessage
	Author   string
	// OccurredAt is the time that date expressions are relative to, in UTC.
	OccurredAt time.Time
}

// Extract derives the memories of one revision: first those of label and metadata, then those of
// the content in its order, then mentions. The n-th, from 0, has the id memory.ID(in.DataPoint, in.Revision, n).
// Extract takes time linear in the input and never fails: input that it cannot read yields no
// memories.
func Extract(in Input) []memory.Memory {
	in.OccurredAt = instant.Truncate(in.OccurredAt)
	doc := newDocument(in)
	out := newCollector(len(in.Content))
	fromMetadata := allowance{rate: 0, left: MaxFromMetadata}
	readLabelAndMetadata(doc, out, &fromMetadata)
	main := contentAllowance(len(in.Content))
	doc.eachSentence(func(s *sentence) bool {
		if main.at(s.start) {
			out.add(s, readSentence(doc, s), &main)
		}
		return len(out.drafts) < MaxMemories
	})
	out.addMentions()
	return out.memories(in, datapoint.NodeID(in.DataPoint, in.Revision), doc.excerpt)
}
