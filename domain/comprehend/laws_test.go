package comprehend_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/memory"
)

var kinds = []string{
	memory.Observation, memory.Claim, memory.Rule, memory.Membership, memory.Identity,
	memory.Mention, memory.TemporalAnchor,
}

// failer is what *testing.T and *rapid.T share.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

// obey checks what holds of the memories of every revision.
func obey(t failer, in comprehend.Input, got []memory.Memory) {
	t.Helper()
	if most := comprehend.MemoriesPer10KiB*(len(in.Content)/(10<<10)+2) + comprehend.MaxFromMetadata; len(got) > min(
		most, comprehend.MaxMemories,
	) {
		t.Errorf("%d memories from %d bytes", len(got), len(in.Content))
	}
	source := datapoint.NodeID(in.DataPoint, in.Revision)
	lines, ids := map[string]bool{}, map[uuid.UUID]bool{source: true}
	for n, m := range got {
		if m.ID != memory.ID(in.DataPoint, in.Revision, n) {
			t.Errorf("memory %d has the id %v", n, m.ID)
		}
		if !slices.Contains(kinds, m.Kind) {
			t.Errorf("kind %q", m.Kind)
		}
		obeyLine(t, m.Content)
		if key := strings.ToLower(m.Content); lines[key] {
			t.Errorf("%q comes twice", m.Content)
		} else {
			lines[key] = true
		}
		obeyExcerpt(t, in, m)
		if (m.Kind == memory.Claim) != (m.Subject != "" && m.Attribute != "") {
			t.Errorf("%s %q has the subject %q and the attribute %q", m.Kind, m.Content, m.Subject, m.Attribute)
		}
		if m.Kind == memory.TemporalAnchor != m.ResolvedFrom.Before(m.ResolvedTo) || m.Kind == memory.TemporalAnchor &&
			(m.ResolvedFrom.Year() < 1 || m.ResolvedTo.Year() > 9999) {
			t.Errorf("%s %q resolves to %v until %v", m.Kind, m.Content, m.ResolvedFrom, m.ResolvedTo)
		}
		// A memory follows its inputs, so lineage has no circles.
		if len(m.Inputs) == 0 || m.Inputs[0] != source {
			t.Errorf("%q does not name its source", m.Content)
		}
		for _, input := range m.Inputs {
			if !ids[input] {
				t.Errorf("%q is built from %v, which does not stand before it", m.Content, input)
			}
		}
		ids[m.ID] = true
		for _, name := range m.Entities {
			if name == "" || !utf8.ValidString(name) {
				t.Errorf("%q names %q", m.Content, name)
			}
		}
	}
}

func obeyLine(t failer, line string) {
	t.Helper()
	if line == "" || line != strings.TrimSpace(line) || !utf8.ValidString(line) ||
		utf8.RuneCountInString(line) > comprehend.MaxLine || strings.ContainsFunc(line, unicode.IsControl) {
		t.Errorf("%q is no line", line)
	}
}

func obeyExcerpt(t failer, in comprehend.Input, m memory.Memory) {
	t.Helper()
	if m.Start == 0 && m.End == 0 {
		if !strings.Contains(in.Content, m.Excerpt) || utf8.RuneCountInString(m.Excerpt) > comprehend.MaxExcerpt {
			t.Errorf("%q cites %q", m.Content, m.Excerpt)
		}
		return
	}
	if m.Start < 0 || m.Start >= m.End || m.End > len(in.Content) || in.Content[m.Start:m.End] != m.Excerpt {
		t.Errorf("%q cites %q at %d to %d", m.Content, m.Excerpt, m.Start, m.End)
	}
}

// pieces are what drawn texts are made of: words of the grammar in every order, and what breaks
// grammars.
var pieces = strings.Fields(`I my we our you me I'm I've I'd I'll don't can't won't Ana Bo Ana's Bo's Ruiz Helix Acme Berlin the a an and but so because which never always not no longer
	love loves moved went is are was has have had been will would going to works lives joined prefers goes by aka called name email favourite editor team member of on in at for over since
	yesterday tomorrow next last this Tuesday Friday week month year ago two 3 June 2025 2025-06-03 at 5 pm noon . . . , , ! ? ; : - — ( ) " ' … ’ “ ” @ana ana@example.com # * > | [x] ... 🎉 é 我 й ß İ ſ`)

func drawText(t *rapid.T, name string) string {
	words := rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 60).Draw(t, name)
	gaps := rapid.SliceOfN(rapid.SampledFrom([]string{
		" ", " ", " ", " ", " ", " ", "", "\n", "\n\n", "\r\n", "\t",
		"\x00", "\u2028", "\u0085", "\nAna: ", "\nBo Berg: ", "\n- ", "\n> ", "\n```\n", "\xff",
	}), len(words), len(words)).Draw(t, name+" gaps")
	var b strings.Builder
	for i, w := range words {
		b.WriteString(w + gaps[i])
	}
	return b.String()
}

func TestExtract_Laws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := comprehend.Input{
			DataPoint: dataPoint, Revision: rapid.IntRange(1, 9).Draw(t, "revision"), Content: drawText(t, "content"),
			Label: rapid.SampledFrom([]string{"", "Ana, session 3", "Minutes of 3 June 2025", "\x00\xff"}).Draw(t, "label"),
			Author: rapid.SampledFrom([]string{"", "Ana", "ana", "user", "assistant", "u-17", "\x00", "a\nb"}).Draw(t,
				"author"),
			OccurredAt: day(t),
		}
		if rapid.Bool().Draw(t, "metadata") {
			text, err := json.Marshal(map[string]any{
				"summary": drawText(t, "summary"), "team": "platform",
				"people": []string{"Bo", drawText(t, "person")},
			})
			if err != nil {
				t.Fatal(err)
			}
			in.Metadata = text
		}
		got := comprehend.Extract(in)
		obey(t, in, got)
		if diff := cmp.Diff(got, comprehend.Extract(in)); diff != "" {
			t.Errorf("read again, it differs:\n%s", diff)
		}
	})
}

// Text before a text changes its spans only: reading is local to a paragraph.
func TestSpans_MoveWithTheText(t *testing.T) {
	const text = "Ana moved the launch to 3 June 2025.\x00 I live in Berlin — and my sister’s name is Dee."
	alone := extract(text, "Bo")
	const before = "Nothing happens here, really.\n\n"
	moved := extract(before+text, "Bo")
	if len(alone) == 0 || len(alone) != len(moved) {
		t.Fatalf("%d memories alone, %d moved", len(alone), len(moved))
	}
	for i, m := range moved {
		if m.Content != alone[i].Content || m.Start != alone[i].Start+len(before) || m.End != alone[i].End+len(before) {
			t.Errorf("%q at %d is %q at %d", alone[i].Content, alone[i].Start, m.Content, m.Start)
		}
	}
}

func FuzzExtract(f *testing.F) {
	f.Add("I love tea.\nAna: I live in Berlin and work at Acme. Bo's favourite editor is now Zed!", "Ana, session 3",
		`{"team":"platform","email":"ana@x"}`, "Ana", int64(1747042200))
	f.Add(
		"Ana Ruiz (aka aruiz) moved the launch to next Tuesday at 5 pm.\r\n> quoted\n```\ncode\n```\n- [x] Never deploy on Fridays",
		"", `{"a":[{"b":[1,"x y z"]}]}`, "", int64(0),
	)
	f.Add("I'd've 'twas \x00 “I’m” ... Dr. A. B. 3-5 June, 31.12.2025", "x: y", `[[[[`, "u-17", int64(-62135596800))
	f.Add("the first of may 12:61 in 1000 years 99999 days ago last May", "\xff",
		`{"due":"2025-06-03","rules":["a b c"]}`, "\xff\x00", int64(253402300799))
	f.Fuzz(func(t *testing.T, content, label, metadata, author string, at int64) {
		in := comprehend.Input{
			DataPoint: dataPoint, Revision: 1, Content: content, Label: label,
			Metadata: json.RawMessage(metadata), Author: author, OccurredAt: time.Unix(at, 0),
		}
		got := comprehend.Extract(in)
		obey(t, in, got)
		if diff := cmp.Diff(got, comprehend.Extract(in)); diff != "" {
			t.Errorf("read again, it differs:\n%s", diff)
		}
	})
}
