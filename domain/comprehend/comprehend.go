package comprehend

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

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
	return out.memories(in, memory.SourceID(in.DataPoint, in.Revision), doc.excerpt)
}

// draft is a memory before it has an id.
type draft struct {
	kind      string
	line      string
	subject   string
	attribute string
	entities  []string
	from, to  time.Time
	start     int // span in the content, of the sentence unless a rule narrows it
	end       int
	basis     []string // lines of drafts of the same sentence that it is built from
	named     bool     // a mention that states nothing of the name, and waits for what the others hold
}

// allowance limits how many memories may still be taken. It grows with the bytes read.
type allowance struct {
	rate float64 // memories per byte
	left float64
	seen int
}

// contentAllowance spreads the memories of a content of n bytes evenly over it, with room for one
// dense part.
func contentAllowance(n int) allowance {
	a := allowance{rate: float64(MemoriesPer10KiB) / (10 << 10), left: MemoriesPer10KiB}
	if n > 0 && a.rate*float64(n) > MaxMemories-MaxFromMetadata-MemoriesPer10KiB {
		a.rate = float64(MaxMemories-MaxFromMetadata-MemoriesPer10KiB) / float64(n)
	}
	return a
}

// at advances the allowance to a byte of the content and reports whether a memory may be taken
// there.
func (a *allowance) at(offset int) bool {
	a.left = min(a.left+a.rate*float64(offset-a.seen), MemoriesPer10KiB)
	a.seen = offset
	return a.left >= 1
}

// collector keeps drafts in order, each line once. Mentions wait until all others are known.
type collector struct {
	drafts   []draft
	mentions []draft
	byLine   map[string]int
}

func newCollector(content int) *collector {
	return &collector{byLine: make(map[string]int, min(content/256, MaxMemories))}
}

// add takes the drafts of one sentence in order, as many as the allowance permits.
func (c *collector) add(s *sentence, drafts []draft, a *allowance) {
	for _, d := range drafts {
		if a.left < 1 || len(c.drafts) >= MaxMemories {
			return
		}
		key := strings.ToLower(d.line)
		if d.named && len(c.mentions) == maxNames {
			continue
		}
		if _, double := c.byLine[key]; double || d.line == "" || utf8.RuneCountInString(d.line) > MaxLine {
			continue
		}
		if s.fromMetadata {
			d.start, d.end = 0, 0
		} else if d.end == 0 {
			d.start, d.end = s.start, s.end
		}
		if d.named {
			c.byLine[key] = noDraft
			c.mentions = append(c.mentions, d)
			continue
		}
		c.byLine[key] = len(c.drafts)
		c.drafts = append(c.drafts, d)
		a.left--
	}
}

const (
	// maxNames is how many names of a content may become mentions, in its order.
	maxNames = 64
	// noDraft is the index of the line of a mention that waits.
	noDraft = -1
)

// addMentions adds the first MaxMentions mentions whose name no other memory holds: one that repeats a name leads to
// nothing that the others do not lead to.
func (c *collector) addMentions() {
	if len(c.mentions) == 0 {
		return
	}
	var held strings.Builder
	for _, d := range c.drafts {
		held.WriteString(" " + normalize(d.line) + " ")
	}
	known := held.String()
	added := 0
	for _, d := range c.mentions {
		if added == MaxMentions || len(c.drafts) == MaxMemories {
			return
		}
		if !strings.Contains(known, " "+normalize(d.entities[0])+" ") {
			c.byLine[strings.ToLower(d.line)] = len(c.drafts)
			c.drafts = append(c.drafts, d)
			added++
		}
	}
}

// memories gives each draft its id and its inputs: the drafts that it is built from, and the
// source.
func (c *collector) memories(in Input, source uuid.UUID, excerpt string) []memory.Memory {
	out := make([]memory.Memory, 0, len(c.drafts))
	for n, d := range c.drafts {
		m := memory.Memory{
			ID: memory.ID(in.DataPoint, in.Revision, n), Kind: d.kind,
			Content: d.line, Excerpt: excerpt, Start: d.start, End: d.end,
			Subject: d.subject, Attribute: d.attribute, Entities: d.entities, ResolvedFrom: d.from, ResolvedTo: d.to,
			Inputs: []uuid.UUID{source},
		}
		if d.end > 0 {
			m.Excerpt = in.Content[d.start:d.end]
		}
		for _, line := range d.basis {
			if k, ok := c.byLine[strings.ToLower(line)]; ok && k != noDraft && k < n {
				m.Inputs = append(m.Inputs, memory.ID(in.DataPoint, in.Revision, k))
			}
		}
		out = append(out, m)
	}
	return out
}
