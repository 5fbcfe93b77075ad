package comprehend

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
)

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
