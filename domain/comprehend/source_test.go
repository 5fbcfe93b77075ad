package comprehend_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/memory"
)

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
	source, anchor, event, claim := datapoint.NodeID(dataPoint,
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
