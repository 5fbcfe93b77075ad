package comprehend_test

import (
	"encoding/json"
	"fmt"
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
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/internal/runtest"
)

// monday is 12 May 2025, the day of the design's example.
var monday = time.Date(2025, 5, 12, 9, 30, 0, 0, time.UTC)

var dataPoint = uuid.MustParse("3f0c7d1e-7a53-4c2e-9d53-0a1b2c3d4e5f")

func extract(content, author string) []memory.Memory {
	return comprehend.Extract(comprehend.Input{
		DataPoint: dataPoint, Revision: 1, Content: content, Author: author,
		OccurredAt: monday,
	})
}

// The examples of the design, word for word.
func TestExtract_DesignExamples(t *testing.T) {
	for _, tc := range []struct{ kind, content, author, want string }{
		{memory.Observation, "Ana moved the launch to 3 June 2025", "Bo", "Ana moved the launch to 3 June 2025"},
		{memory.Claim, "Ana's favourite editor is Helix", "Bo", "Ana's favourite editor is Helix"},
		{memory.Rule, "Never deploy on Fridays", "Bo", "Never deploy on Fridays"},
		{memory.Membership, "Ana is on the platform team", "Bo", "Ana is on the platform team"},
		{memory.Identity, "Ana Ruiz goes by aruiz", "Bo", "Ana Ruiz goes by aruiz"},
		{memory.Mention, "Have you heard of Helix?", "Ana", "Ana mentions Helix"},
		{memory.TemporalAnchor, "We meet next Tuesday.", "Ana", `"next Tuesday", said on 12 May 2025, is 13 May 2025`},
	} {
		got := extract(tc.content, tc.author)
		if !slices.ContainsFunc(got, func(m memory.Memory) bool { return m.Kind == tc.kind && m.Content == tc.want }) {
			t.Errorf("%q gives no %s %q: %+v", tc.content, tc.kind, tc.want, got)
		}
	}
}

// lines are the memories of an input as "kind: line", without mentions where quiet is true.
func lines(in comprehend.Input, quiet bool) []string {
	in.DataPoint, in.Revision, in.OccurredAt = dataPoint, 1, monday
	var got []string
	for _, m := range comprehend.Extract(in) {
		if !quiet || m.Kind != memory.Mention {
			got = append(got, m.Kind+": "+m.Content)
		}
	}
	return got
}

func TestExtract_Speaker(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   comprehend.Input
		want []string
	}{
		{"author", comprehend.Input{Content: "I love tea.", Author: "Ana"}, []string{"claim: Ana loves tea"}},
		{"nobody known", comprehend.Input{Content: "I love tea."}, []string{"claim: I love tea"}},
		{"label alone", comprehend.Input{Content: "I love tea.", Label: "Ana, session 3"}, []string{"claim: Ana loves tea"}},
		{"label names the author", comprehend.Input{Content: "I love tea.", Label: "Ana Ruiz, session 3", Author: "ana"}, []string{"claim: Ana Ruiz loves tea"}},
		{"label names an opaque author", comprehend.Input{Content: "I love tea.", Label: "Ana (turn 4)", Author: "8f14e45f-ceea-467f-a8c3-1d2c3e4f5a6b"}, []string{"claim: Ana loves tea"}},
		{"label is a title", comprehend.Input{Content: "I love tea.", Label: "Notes, session 3", Author: "Ana"}, []string{"claim: Ana loves tea"}},
		{"label names another", comprehend.Input{Content: "I love tea.", Label: "Bo, session 3", Author: "Ana"}, []string{"claim: Ana loves tea"}},
		{"author is a role", comprehend.Input{Content: "I love tea.", Label: "Ana, session 3", Author: "user"}, []string{"claim: Ana loves tea"}},
		{"a machine speaks", comprehend.Input{Content: "I love tea. Never deploy on Fridays. Ana moved the launch.", Author: "assistant"}, nil},
		{"one turn", comprehend.Input{Content: "Ana: I love tea."}, []string{"claim: Ana loves tea"}},
		{"dialogue", comprehend.Input{Content: "Ana: I love tea.\nBo: I prefer coffee.\nAnd I love milk."}, []string{"claim: Ana loves tea", "claim: Bo prefers coffee", "claim: Bo loves milk"}},
		{"dialogue with times", comprehend.Input{Content: "[10:02] Ana: I love tea.\n[10:03] Bo: I live in Rome.\n10:04 Ana: I love cats."}, []string{"claim: Ana loves tea", "claim: Bo lives in Rome", "claim: Ana loves cats"}},
		{"dialogue in bold", comprehend.Input{Content: "**Ana**: I love tea.\n**Bo Berg**: I live in Rome."}, []string{"claim: Ana loves tea", "claim: Bo Berg lives in Rome"}},
		{"dialogue with a machine", comprehend.Input{Content: "User: I love tea.\nAssistant: I love helping you. I recommend green tea.", Author: "Ana"}, []string{"claim: Ana loves tea"}},
		{"a paragraph behind a dialogue is nobody's", comprehend.Input{Content: "Ana: I love tea.\nBo: I love cats.\n\nI love dogs.", Author: "Cy"}, []string{"claim: Ana loves tea", "claim: Bo loves cats", "claim: I love dogs"}},
		{"fields are no turns", comprehend.Input{Content: "Storage: I love tea.\nSummary: Postgres\nOwner: Bo", Author: "Ana"}, []string{"claim: Ana loves tea"}},
		{"quoted lines are another's", comprehend.Input{Content: "> I love tea.\nI love cats.", Author: "Ana"}, []string{"claim: Ana loves cats"}},
		{"quoted speech is another's", comprehend.Input{Content: `Bo said, "I love tea."`, Author: "Ana"}, nil},
		{"code says nothing", comprehend.Input{Content: "```\n// I love tea.\n```\nI love cats.", Author: "Ana"}, []string{"claim: Ana loves cats"}},
		{"list items", comprehend.Input{Content: "- I love tea.\n- [x] I love cats.\n2. I love dogs.", Author: "Ana"}, []string{"claim: Ana loves tea", "claim: Ana loves cats", "claim: Ana loves dogs"}},
		{"wrapped lines are one sentence", comprehend.Input{Content: "After a long day of meetings and reviews, Bo\nmoved the launch of the payments service to\n3 June 2025.", Author: "Ana"}, []string{
			`temporal-anchor: "3 June 2025" is Tuesday, 3 June 2025`,
			"observation: After a long day of meetings and reviews, Bo moved the launch of the payments service to 3 June 2025",
			"claim: The launch of the payments service is on 3 June 2025",
		}},
		{"equal statements once", comprehend.Input{Content: "I love tea. I love tea! I LOVE tea.", Author: "Ana"}, []string{"claim: Ana loves tea"}},
		{"abbreviations end nothing", comprehend.Input{Content: "I work for Dr. Berg at St. Mary.", Author: "Ana"}, []string{"claim: Ana works for Dr. Berg at St. Mary"}},
		{"marks behind the end", comprehend.Input{Content: "I love tea. -> 1,25", Author: "Ana"}, []string{"claim: Ana loves tea"}},
		{"NUL is white space", comprehend.Input{Content: "I\x00love\x00tea.", Author: "A\x00na"}, []string{"claim: A na loves tea"}},
		{"broken UTF-8 is left alone", comprehend.Input{Content: "I love tea \xff. I love cats.", Author: "Ana\xff"}, []string{"claim: Ana loves cats"}},
		{"another language", comprehend.Input{Content: "Ich liebe Tee und Katzen. Der Hund war in Berlin, die Katze ist in Rom.", Author: "Ana"}, nil},
		{"nothing", comprehend.Input{}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, lines(tc.in, true)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestExtract_LabelAndMetadata(t *testing.T) {
	for _, tc := range []struct {
		name, label, author, metadata string
		want                          []string
	}{
		{"date in the label", "Planning for 3 June 2025", "Ana", ``, []string{`temporal-anchor: "3 June 2025" is Tuesday, 3 June 2025`}},
		{
			"statement in the label", "Bo moved the demo to 3 June 2025", "Ana", ``,
			[]string{
				`temporal-anchor: "3 June 2025" is Tuesday, 3 June 2025`,
				"observation: Bo moved the demo to 3 June 2025", "claim: The demo is on 3 June 2025",
			},
		},
		{"title in the label", "Weekly Sync With Bo About Apollo", "Ana", ``, nil},
		{"speaker in the label", "Ana, session 3", "Ana", ``, nil},
		{"attendees", "", "Ana", `{"attendees":["Bo","Cy"]}`, []string{"mention: Bo is named as an attendee", "mention: Cy is named as an attendee"}},
		{"people in objects", "", "", `{"assignee":{"name":"Bo Berg","email":"bo@example.com"}}`, []string{"mention: Bo Berg is named as an assignee", "identity: Bo Berg's email is bo@example.com"}},
		{"the author's team", "", "Ana", `{"team":"platform"}`, []string{"membership: Ana is on the platform team"}},
		{"a team without an author", "", "", `{"team":"platform"}`, nil},
		{"another's team", "", "Ana", `{"name":"Bo","department":"Finance"}`, []string{"membership: Bo is in the Finance department"}},
		{"members of a team", "", "", `{"team":{"name":"platform","members":["Bo","Cy"]}}`, []string{"membership: Bo is a member of the platform team", "membership: Cy is a member of the platform team"}},
		{"the author's address", "", "Ana", `{"email":"ana@x"}`, []string{"identity: Ana's email is ana@x"}},
		{"no address", "", "Ana", `{"email":"none"}`, nil},
		{"the author is the address", "", "ana@x", `{"email":"ana@x"}`, nil},
		{"a nested profile", "", "Ana", `{"user":{"github":"aruiz","phone":"+49 30 123456"}}`, []string{"identity: Ana's GitHub handle is aruiz", "identity: Ana's phone number is +49 30 123456"}},
		{"too deep to be the author's", "", "Ana", `{"repo":{"config":{"email":"ci@example.com"}}}`, nil},
		{
			"preferences", "", "Ana", `{"preferences":{"theme":"dark"},"favouriteEditor":"Helix","timezone":"Europe/Berlin"}`,
			[]string{
				"claim: Ana's preferred theme is dark", "claim: Ana's favourite editor is Helix",
				"claim: Ana's time zone is Europe/Berlin",
			},
		},
		{"rules", "", "", `{"rules":["Never deploy on Fridays.","x"]}`, []string{"rule: Never deploy on Fridays"}},
		{
			"dates", "", "", `{"due":"2025-06-03","launchDate":"2025-06-04","created_at":"2025-01-01T00:00:00Z","end":"soon"}`,
			[]string{
				`temporal-anchor: due: "2025-06-03" is Tuesday, 3 June 2025`,
				`temporal-anchor: launch date: "2025-06-04" is Wednesday, 4 June 2025`,
			},
		},
		{
			"texts", "", "Ana", `{"summary":"Bo moved the launch to 3 June 2025. Thanks!"}`,
			[]string{
				`temporal-anchor: "3 June 2025" is Tuesday, 3 June 2025`,
				"observation: Bo moved the launch to 3 June 2025", "claim: The launch is on 3 June 2025",
			},
		},
		{"role in a dialogue", "", "Ana", `{"role":"assistant"}`, nil},
		{"technical fields", "", "Ana", `{"id":17,"tags":["a","b"],"source":"slack","url":"https://example.com","score":0.5,"nested":{"a":[{"b":null}]},"ok":true}`, nil},
		{"no JSON", "", "Ana", `{"team":"platform"`, nil},
		{"a bare value", "", "Ana", `"platform"`, nil},
		{"an array", "", "Ana", `["Bo","Cy"]`, nil},
		{"deep", "", "Ana", strings.Repeat("[", 5000) + strings.Repeat("]", 5000), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := comprehend.Input{
				Content: "Hello there. And good bye.", Label: tc.label, Author: tc.author,
				Metadata: json.RawMessage(tc.metadata),
			}
			if diff := cmp.Diff(tc.want, lines(in, false)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			in.DataPoint, in.Revision, in.OccurredAt = dataPoint, 1, monday
			for _, m := range comprehend.Extract(in) {
				if m.Start != 0 || m.End != 0 || m.Excerpt != "Hello there." {
					t.Errorf("%q cites %q at %d to %d", m.Content, m.Excerpt, m.Start, m.End)
				}
			}
		})
	}
}

// Lineage: the claim was built from the event, and the event from the date in it.
func TestInputs(t *testing.T) {
	got := extract("Ana moved the launch to next Tuesday.", "Bo")
	find := func(kind string) memory.Memory {
		i := slices.IndexFunc(got, func(m memory.Memory) bool { return m.Kind == kind })
		if i < 0 {
			t.Fatalf("no %s in %+v", kind, got)
		}
		return got[i]
	}
	source, anchor, event, claim := memory.SourceID(dataPoint,
		1), find(memory.TemporalAnchor), find(memory.Observation), find(memory.Claim)
	if !slices.Contains(event.Inputs, source) || !slices.Contains(event.Inputs, anchor.ID) {
		t.Errorf("the event is built from %v", event.Inputs)
	}
	if !slices.Contains(claim.Inputs, source) || !slices.Contains(claim.Inputs, event.ID) {
		t.Errorf("the claim is built from %v", claim.Inputs)
	}
	if claim.Subject != "launch" || claim.Attribute != "date" || !slices.Contains(event.Entities, "Ana") {
		t.Errorf("claim %q %q, event of %v", claim.Subject, claim.Attribute, event.Entities)
	}
}

func TestExcerpts(t *testing.T) {
	const content = "Good morning!  I moved\tthe launch to 3 June 2025, 🎉 and I love tea. Bye."
	for _, m := range extract(content, "Ana") {
		if want := "I moved\tthe launch to 3 June 2025, 🎉 and I love tea."; m.Excerpt != want ||
			content[m.Start:m.End] != want {
			t.Errorf("%q cites %q", m.Content, m.Excerpt)
		}
	}
	long := strings.Repeat("word ", 100)
	in := comprehend.Input{
		DataPoint: dataPoint, Revision: 1, Content: long, Author: "Ana",
		Metadata: json.RawMessage(`{"team":"platform"}`), OccurredAt: monday,
	}
	if got := comprehend.Extract(in); len(got) != 1 || got[0].Excerpt != strings.TrimSpace(long[:comprehend.MaxExcerpt]) {
		t.Errorf("a long first sentence is cited as %+v", got)
	}
}

var kinds = []string{
	memory.Observation, memory.Claim, memory.Rule, memory.Membership, memory.Identity,
	memory.Mention, memory.TemporalAnchor,
}

// obey checks what holds of the memories of every revision.
func obey(t runtest.T, in comprehend.Input, got []memory.Memory) {
	t.Helper()
	if most := comprehend.MemoriesPer10KiB*(len(in.Content)/(10<<10)+2) + comprehend.MaxFromMetadata; len(got) > min(
		most, comprehend.MaxMemories,
	) {
		t.Errorf("%d memories from %d bytes", len(got), len(in.Content))
	}
	source := memory.SourceID(in.DataPoint, in.Revision)
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

func obeyLine(t runtest.T, line string) {
	t.Helper()
	if line == "" || line != strings.TrimSpace(line) || !utf8.ValidString(line) ||
		utf8.RuneCountInString(line) > comprehend.MaxLine || strings.ContainsFunc(line, unicode.IsControl) {
		t.Errorf("%q is no line", line)
	}
}

func obeyExcerpt(t runtest.T, in comprehend.Input, m memory.Memory) {
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
			runtest.Must(t, err)
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

// heavy are contents of the largest size a client may send, each against a different part of the
// grammar.
func heavy(size int) map[string]string {
	fill := func(unit string) string { return strings.Repeat(unit, size/len(unit)+1)[:size] }
	return map[string]string{
		"prose":        fill("Ana moved the launch to 3 June 2025 and Bo likes tea. We met next Tuesday, didn't we? I love my dog Rex. "),
		"lines":        fill("Ana: I went to Rome last week with Bo.\nBo: My favourite city is Lisbon!\n"),
		"numbers":      fill("1. "),
		"dots":         fill("."),
		"one word":     fill("a"),
		"hyphens":      fill("a-"),
		"newlines":     fill("\n"),
		"quotes":       fill("' \" "),
		"initials":     fill("Dr. A. "),
		"wrapped":      fill("this line goes on and on without an end of a sentence\nand it is wrapped "),
		"colons":       fill("Ana Bo Cy: "),
		"speakers":     fill("Ab: x\nCd: y\n"),
		"nul":          fill("\x00"),
		"invalid":      fill("\xff\xfe a. "),
		"ideographs":   fill("我喜欢茶。"),
		"no sentences": fill("word "),
	}
}

// The largest content that a client may send is read within seconds, whatever it holds.
func TestExtract_LargestContent(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 16 MiB many times")
	}
	texts := heavy(4 << 20)
	texts["largest"] = heavy(16 << 20)["lines"]
	for name, content := range texts {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			got := comprehend.Extract(comprehend.Input{
				DataPoint: dataPoint, Revision: 1, Content: content, Author: "Ana",
				OccurredAt: monday,
			})
			took := time.Since(start)
			t.Logf("%d memories in %v", len(got), took)
			if len(got) > comprehend.MaxMemories {
				t.Errorf("%d memories", len(got))
			}
			if took > 10*time.Minute { // seconds in practice; the room is for busy machines
				t.Errorf("took %v", took)
			}
		})
	}
}

func BenchmarkExtract(b *testing.B) {
	for _, size := range []int{200, 10 << 10, 1 << 20} {
		content := heavy(size)["prose"]
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				comprehend.Extract(comprehend.Input{
					DataPoint: dataPoint, Revision: 1, Content: content, Author: "Ana",
					OccurredAt: monday,
				})
			}
		})
	}
}
