package comprehend_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/memory"
)

// labelled is one text of testdata/labelled.txt.
type labelled struct {
	in     comprehend.Input
	labels []label
}

// label is one memory that a careful reader accepts of a text.
type label struct {
	kind     string
	optional bool
	patterns []string // of the line; for a mention of the name, for a date of the quoted expression
	resolved []string // what a date resolves to
	key      string   // of a claim
}

func readLabelled(t *testing.T) []labelled {
	t.Helper()
	text, err := os.ReadFile("testdata/labelled.txt")
	if err != nil {
		t.Fatal(err)
	}
	in := comprehend.Input{DataPoint: dataPoint, Revision: 1}
	var all []labelled
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		field, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "> "):
			in.Content = strings.ReplaceAll(line[2:], `\n`, "\n")
			all = append(all, labelled{in: in})
		case strings.HasPrefix(line, "  "):
			last := &all[len(all)-1]
			last.labels = append(last.labels, readLabel(t, field, value))
		case field == "author":
			in.Author = value
		case field == "said":
			if in.OccurredAt, err = time.Parse(time.RFC3339, value); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("%q", line)
		}
	}
	return all
}

func readLabel(t *testing.T, kind, value string) label {
	t.Helper()
	var l label
	l.kind, l.optional = strings.CutPrefix(kind, "?")
	if !l.optional {
		l.kind = kind
	}
	known := false
	for _, k := range kinds {
		known = known || k == l.kind
	}
	if !known {
		t.Fatalf("%q is no kind", kind)
	}
	if open := strings.LastIndex(value, " {"); open > 0 {
		value, l.key = value[:open], strings.Trim(value[open:], " {}")
	}
	if l.kind == memory.TemporalAnchor {
		words, days, _ := strings.Cut(value, " = ")
		l.patterns, l.resolved = []string{words}, strings.Split(days, " | ")
	} else {
		l.patterns = strings.Split(value, " | ")
	}
	return l
}

// brackets hold a resolved date: the anchors of the text show whether it is right.
var brackets = regexp.MustCompile(` \([^()]*\d{4}[^()]*\)`)

// accepts reports whether a memory is what the label asks for.
func (l label) accepts(m memory.Memory) bool {
	if m.Kind != l.kind {
		return false
	}
	if l.kind == memory.TemporalAnchor {
		for _, span := range l.resolved {
			if strings.Contains(strings.ToLower(m.Content), strings.ToLower(l.patterns[0])) && resolves(m, span) {
				return true
			}
		}
		return false
	}
	line := strings.ToLower(strings.TrimRight(brackets.ReplaceAllString(m.Content, ""), "."))
	line = plainGenitive(line)
	if l.kind == memory.Mention {
		_, name, _ := strings.Cut(line, " mentions ")
		line = name
	}
	for _, p := range l.patterns {
		if fits(plainGenitive(strings.ToLower(p)), line) {
			return true
		}
	}
	return false
}

// plainGenitive makes "Jonas' dog" and "Jonas's dog" one.
func plainGenitive(line string) string { return strings.ReplaceAll(line, "s' ", "s's ") }

// fits matches a line with a pattern in which "*" is any text.
func fits(pattern, line string) bool {
	parts := strings.Split(pattern, "*")
	line, found := strings.CutPrefix(line, parts[0])
	for i, part := range parts[1:] {
		if i == len(parts)-2 {
			return found && strings.HasSuffix(line, part)
		}
		at := strings.Index(line, part)
		if at < 0 {
			return false
		}
		line = line[at+len(part):]
	}
	return found && line == ""
}

// resolves reports whether an anchor names the days, or the minute, of the label.
func resolves(m memory.Memory, span string) bool {
	first, last, ranged := strings.Cut(span, "..")
	if at, err := time.Parse("2006-01-02T15:04", first); err == nil {
		return m.ResolvedFrom.Equal(at)
	}
	if !ranged {
		last = first
	}
	return m.ResolvedFrom.Format(time.DateOnly) == first &&
		m.ResolvedTo.AddDate(0, 0, -1).Format(time.DateOnly) == last && m.ResolvedFrom.Hour() == 0
}

// repeats reports whether a label is a mention of a name that another memory holds, or one of more than are derived.
func repeats(l label, derived []memory.Memory) bool {
	if l.kind != memory.Mention {
		return false
	}
	mentions := 0
	for _, m := range derived {
		if m.Kind == memory.Mention {
			mentions++
		} else if strings.Contains(m.Content, strings.Trim(l.patterns[0], "*")) {
			return true
		}
	}
	return mentions >= comprehend.MaxMentions
}

// tally counts one kind.
type tally struct{ right, wrong, found, asked int }

func (c tally) precision() float64 { return float64(c.right) / float64(max(c.right+c.wrong, 1)) }
func (c tally) recall() float64    { return float64(c.found) / float64(max(c.asked, 1)) }

// floors are the recall that the grammar has reached: precision must not be bought with silence.
// The precision of each kind is at least 0.9 by what is promised.
var floors = map[string]float64{
	memory.Observation: 0.97, memory.Claim: 0.95, memory.Rule: 0.95, memory.Membership: 0.95,
	memory.Identity: 0.9, memory.Mention: 0.95, memory.TemporalAnchor: 0.97,
}

// The memories of texts as people write them, against what a careful reader accepts of each.
func TestLabelled(t *testing.T) {
	counts := map[string]*tally{}
	for _, k := range kinds {
		counts[k] = &tally{}
	}
	claims := map[string][]memory.Memory{}
	texts := readLabelled(t)
	for _, text := range texts {
		taken := make([]bool, len(text.labels))
		derived := comprehend.Extract(text.in)
	memories:
		for _, m := range derived {
			for i, l := range text.labels {
				if !taken[i] && l.accepts(m) {
					taken[i] = true
					counts[m.Kind].right++
					if l.key != "" {
						claims[l.key] = append(claims[l.key], m)
					}
					continue memories
				}
			}
			counts[m.Kind].wrong++
			t.Logf("wrong   %-15s %q  of %q", m.Kind, m.Content, text.in.Content)
		}
		for i, l := range text.labels {
			if !l.optional && (taken[i] || !repeats(l, derived)) {
				counts[l.kind].asked++
				if taken[i] {
					counts[l.kind].found++
				} else {
					t.Logf("missing %-15s %q  of %q", l.kind, l.patterns, text.in.Content)
				}
			}
		}
	}
	t.Logf("%d texts\n%-16s %9s %9s %7s %7s", len(texts), "kind", "precision", "recall", "derived", "asked")
	for _, k := range kinds {
		c := counts[k]
		t.Logf("%-16s %9.3f %9.3f %7d %7d", k, c.precision(), c.recall(), c.right+c.wrong, c.asked)
		if c.precision() < 0.9 || c.recall() < floors[k] || c.asked < 15 {
			t.Errorf("%s: precision %.3f, recall %.3f of %d", k, c.precision(), c.recall(), c.asked)
		}
	}
	checkKeys(t, claims)
}

// checkKeys holds the claims that supersede one another to one key each, and the others to keys of
// their own.
func checkKeys(t *testing.T, claims map[string][]memory.Memory) {
	t.Helper()
	owner := map[string]string{}
	for key, list := range claims {
		for _, m := range list {
			pair := m.Subject + " / " + m.Attribute
			if first := list[0].Subject + " / " + list[0].Attribute; pair != first {
				t.Errorf("%s: %q has %q and %q has %q", key, list[0].Content, first, m.Content, pair)
			}
			if other, ok := owner[pair]; ok && other != key {
				t.Errorf("%q is the key of %s and of %s", pair, other, key)
			}
			owner[pair] = key
		}
	}
}
