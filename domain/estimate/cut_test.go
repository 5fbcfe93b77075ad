package estimate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/runtest"
)

var update = flag.Bool("update", false, "write the golden files")

// rome is a zone with summer time.
func rome(t testing.TB) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Rome")
	runtest.Must(t, err)
	return zone
}

// goldenPoint is a data point as a golden file shows it.
type goldenPoint struct {
	ID       string          `json:"id"`
	Label    string          `json:"label,omitempty"`
	Time     string          `json:"timestamp,omitempty"`
	Identity string          `json:"identity,omitempty"`
	Audience string          `json:"audience,omitempty"`
	Content  string          `json:"content"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// goldenOf renders what a file becomes: its kind, then a data point a line.
func goldenOf(t *testing.T, f estimate.File) []byte {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	write := func(v any) {
		runtest.Must(t, enc.Encode(v))
	}
	origin, err := estimate.Cut(t.Context(), f, rome(t), func(p estimate.Point) error {
		g := goldenPoint{p.ID, p.Label, "", p.Identity, p.Audience, p.Content, p.Metadata}
		if !p.At.IsZero() {
			g.Time = p.At.Format(time.RFC3339Nano)
		}
		if err := checkPoint(p); err != nil {
			t.Errorf("%s: %v", p.ID, err)
		}
		write(g)
		return nil
	})
	head := map[string]any{"kind": origin.Kind, "detectedBy": origin.By}
	if skipped, ok := errors.AsType[*estimate.Skip](err); ok {
		head["skipped"] = skipped.Reason
		out.Reset()
	} else if err != nil {
		t.Fatal(err)
	}
	points := out.String()
	out.Reset()
	write(head)
	out.WriteString(points)
	return out.Bytes()
}

// checkPoint returns what a send would refuse.
func checkPoint(p estimate.Point) error {
	name := func(what, text string, least, most int) error {
		n := utf8.RuneCountInString(text)
		if n < least || n > most || strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return fmt.Errorf("%s is %.200q", what, text)
		}
		return nil
	}
	err := errors.Join(
		name("id", p.ID, 1, limit.SourceID), name("label", p.Label, 0, limit.Label),
		name("identity", p.Identity, 0, limit.Identity),
	)
	if strings.TrimSpace(p.Content) == "" || len(p.Content) > limit.ContentBytes || !utf8.ValidString(p.Content) {
		err = errors.Join(err, fmt.Errorf("the content is %.100q", p.Content))
	}
	if p.Audience != "" && !limit.IsAudienceSlug(p.Audience) {
		err = errors.Join(err, fmt.Errorf("the audience is %q", p.Audience))
	}
	if p.Metadata != nil && (!json.Valid(p.Metadata) || len(p.Metadata) > limit.MetadataBytes) {
		err = errors.Join(err, fmt.Errorf("the metadata is %.200s", p.Metadata))
	}
	if y := p.At.Year(); !p.At.IsZero() && (y < 1 || y > 9999 || p.At.Location() != time.UTC) {
		err = errors.Join(err, fmt.Errorf("the time is %s", p.At))
	}
	return err
}

// Each file under testdata/files becomes what testdata/golden records.
func TestCut_Golden(t *testing.T) {
	root := filepath.Join("testdata", "files")
	kinds := map[estimate.Kind]int{}
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(path)
			runtest.Must(t, err)
			f := estimate.File{Path: name, Content: string(content)}
			got := goldenOf(t, f)
			if again := goldenOf(t, f); !bytes.Equal(got, again) {
				t.Errorf("a second cut differs:\n%s", cmp.Diff(string(got), string(again)))
			}
			golden := filepath.Join("testdata", "golden", strings.ReplaceAll(name, "/", "__")+".json")
			if *update {
				runtest.Must(t, os.WriteFile(golden, got, 0o600))
			}
			want, err := os.ReadFile(golden)
			runtest.Must(t, err)
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			var head struct{ Kind estimate.Kind }
			runtest.Must(t, json.NewDecoder(bytes.NewReader(got)).Decode(&head))
			kinds[head.Kind]++
		})
		return nil
	})
	runtest.Must(t, err)
	for _, kind := range estimate.Kinds() {
		if kinds[kind] == 0 {
			t.Errorf("no file is %s", kind)
		}
	}
}

// skipReason cuts a file, and returns why it is skipped, "" if it is not.
func skipReason(t *testing.T, f estimate.File) string {
	t.Helper()
	_, err := estimate.Cut(t.Context(), f, time.UTC, func(estimate.Point) error { return nil })
	if skipped, ok := errors.AsType[*estimate.Skip](err); ok {
		return skipped.Reason
	}
	runtest.Must(t, err)
	return ""
}

// Front matter is read with nested values and lists; an audience that is no slug keeps the text out.
func TestCut_FrontMatter(t *testing.T) {
	for header, want := range map[string]string{
		"title: a\ndate: 2025-06-02T07:00:00Z\nauthor: Tove":                         "2025-06-02T07:00 Tove ",
		"generated:\n  at: 2025-06-02T07:00:00Z\n  by: bot":                          "2025-06-02T07:00 bot ",
		"author: [Tove, Ivo]\ncreated: 2025-06-02 07:00":                             "2025-06-02T07:00  ",
		"authors:\n  - Tove\nupdated_at: 2. Juni 2025 07:00":                         "2025-06-02T07:00 Tove ",
		"author: {name: Tove, email: t@example.org}\ntimestamp: 2025-06-02T07:00Z":   "2025-06-02T07:00 Tove ",
		"title: Slip: closed\nauthor: Tove\ndate: 2025-06-02 07:00":                  "2025-06-02T07:00 Tove ",
		"audience: crew\nlastmod: 2025-06-02T07:00:00Z":                              "2025-06-02T07:00  crew",
		"a: &a {b: c}\nd: *a\ndate: 2025-06-02T07:00:00Z":                            "2025-06-02T07:00  ",
		"audience: The whole crew":                                                   "names the audience \"The whole crew\"",
		"audience: [crew, board]":                                                    "names the audience",
		"audience: {group: crew}":                                                    "names the audience",
		"audience: []":                                                               "names the audience",
		"a: &a The crew\naudience: *a":                                               "names the audience \"The crew\"",
		"a: &a crew\naudience: *a\ndate: 2025-06-02T07:00:00Z":                       "2025-06-02T07:00  crew",
		"title: a: b\naudience:\n  - crew":                                           "names the audience",
		"access: {audience: crew}\ndate: 2025-06-02T07:00:00Z":                       "2025-06-02T07:00  crew",
		"audience: crew\naccess: {audience: board}\ndate: 2025-06-02T07:00:00Z":      "2025-06-02T07:00  crew",
		"a: {audience: crew}\nb: {audience: board}":                                  "names the audience",
		"meta: {author: Tove, created: 2025-06-02T07:00:00Z}":                        "2025-06-02T07:00 Tove ",
		"metadata:\n  generated:\n    by: {name: bot}\n    at: 2025-06-02T07:00:00Z": "2025-06-02T07:00 bot ",
		"audience:\ndate: 2025-06-02T07:00:00Z":                                      "2025-06-02T07:00  ",
	} {
		points, reason := cutAll(t, estimate.File{Path: "a.md", Content: "---\n" + header + "\n---\n\ntea\n"}, time.UTC)
		got := reason
		if len(points) == 1 {
			got = points[0].At.Format("2006-01-02T15:04") + " " + points[0].Identity + " " + points[0].Audience
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q is %q: want %q", header, got, want)
		}
	}
}

// Headers in TOML and JSON are read too; text between two lines is no header.
func TestCut_FrontMatterForms(t *testing.T) {
	for text, want := range map[string]string{
		"+++\ntitle = \"Slip\"\ndate = 2025-06-02T07:00:00Z\nauthor = \"Tove\"\n+++\ntea\n": "2025-06-02T07:00 Tove  tea",
		"+++\n[params]\naudience = [\"crew\"]\n+++\ntea\n":                                  "0001-01-01T00:00  crew tea",
		"+++\naudience = \"The crew\"\n+++\ntea\n":                                          "names the audience \"The crew\"",
		"+++\naudience = [\n  \"crew\",\n]\n+++\ntea\n":                                     "names the audience",
		"{\n\"date\": \"2025-06-02T07:00:00Z\",\n\"audience\": \"crew\"\n}\ntea\n":          "2025-06-02T07:00  crew tea",
		"{\n\"audience\": {\"group\": \"crew\"}\n}\ntea\n":                                  "names the audience",
		"---\naudience: The crew\npad: " + strings.Repeat("x", 40<<10) + "\n---\ntea\n":     "names the audience",
		"---\nThe slip is closed.\nNote: it is wet.\n---\ntea\n":                            "0001-01-01T00:00   ---\nThe slip is closed.\nNote: it is wet.\n---\ntea",
		"---\ntea for two\n---\n":                                                           "0001-01-01T00:00   ---\ntea for two\n---",
		"---\nmeta:\n  audience: Crew Only\n---\ntea\n":                                     "names the audience \"Crew Only\"",
	} {
		points, reason := cutAll(t, estimate.File{Path: "a.md", Content: text}, time.UTC)
		got := reason
		for _, p := range points {
			got += p.At.Format("2006-01-02T15:04") + " " + p.Identity + " " + p.Audience + " " + strings.TrimSpace(p.Content)
		}
		if !strings.HasPrefix(got, want) || reason == "" && got != want {
			t.Errorf("%.100q is %.200q: want %q", text, got, want)
		}
	}
}

// The format of a file is named, and a kind that is given counts.
func TestCut_Formats(t *testing.T) {
	calendar := "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:a\nEND:VEVENT\n"
	for name, c := range map[string]struct {
		file estimate.File
		want string
	}{
		"calendar":                {estimate.File{Path: "a.ics", Content: calendar}, "records icalendar 1"},
		"calendar by its text":    {estimate.File{Path: "a.txt", Content: "\n" + calendar}, "records icalendar 1"},
		"calendar without a name": {estimate.File{Path: "invite", Content: calendar}, "records icalendar 1"},
		"calendar that is given":  {estimate.File{Path: "a.ics", Content: calendar, Kind: estimate.Records}, "records given 1"},
		"calendar in lower case":  {estimate.File{Path: "a.ics", Content: strings.ToLower(calendar)}, "records icalendar 1"},
		"contacts":                {estimate.File{Path: "a.vcf", Content: "BEGIN:VCARD\nFN:a\nEND:VCARD"}, "records vcard 1"},
		"contact cut off":         {estimate.File{Path: "a.vcf", Content: "BEGIN:VCARD\nFN:a\n"}, "records vcard 1"},
		"notebook":                {estimate.File{Path: "a.ipynb", Content: `{"cells":[{"cell_type":"markdown","source":"a"}]}`}, "documentation jupyter 1"},
		"notebook of format 3":    {estimate.File{Path: "a.ipynb", Content: `{"worksheets":[{"cells":[{"cell_type":"heading","level":2,"source":["a"]},{"cell_type":"code","input":["b"]}]}]}`}, "documentation jupyter 1"},
		"notebook of odd types":   {estimate.File{Path: "a.ipynb", Content: `{"cells":[{"cell_type":"code","source":"a","outputs":7}],"metadata":[]}`}, "documentation jupyter 1"},
		"no notebook":             {estimate.File{Path: "a.ipynb", Content: `[`}, "cannot be read as documentation"},
		"knowledge format":        {estimate.File{Path: "a.md", Content: "---\ntype: Table\ndescription: b\n---\na"}, "documentation okf 1"},
		"Markdown":                {estimate.File{Path: "a.md", Content: "---\ntype: post\n---\na"}, "documentation extension 1"},
		"ChatGPT":                 {estimate.File{Path: "conversations.json", Content: `[{"title":"a","mapping":{"x":{"message":{"author":{}},"parent":null,"children":[]}}}]`}, "looks like an export of ChatGPT"},
		"Claude":                  {estimate.File{Path: "conversations.json", Content: `[{"chat_messages":[{"sender":"human"}]}]`}, "looks like an export of Claude"},
		"Messenger":               {estimate.File{Path: "message_1.json", Content: `{"participants":[],"messages":[{"sender_name":"a","timestamp_ms":1}]}`}, "looks like an export of Messenger"},
		"Google Chat":             {estimate.File{Path: "messages.json", Content: `{"messages":[{"creator":{"name":"a"},"created_date":"x"}]}`}, "looks like an export of Google Chat"},
		"an export as records":    {estimate.File{Path: "a.json", Content: `[{"chat_messages":1,"sender":2}]`, Kind: estimate.Records}, "records given 1"},
	} {
		points := 0
		origin, err := estimate.Cut(t.Context(), c.file, time.UTC, func(p estimate.Point) error {
			points++
			return checkPoint(p)
		})
		got := string(origin.Kind) + " " + string(origin.By) + " " + strings.Repeat("1", points)
		if skipped, ok := errors.AsType[*estimate.Skip](err); ok {
			got = skipped.Reason
		} else if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s is %q: want %q", name, got, c.want)
		}
	}
}

// Of an entry of a calendar, of a contact and of what a notebook printed, people get all that means something to them.
func TestCut_FormsOfFormats(t *testing.T) {
	event := func(lines ...string) string {
		return "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:u\r\nDTSTAMP:20250602T070000Z\r\nSUMMARY:Drill\r\n" +
			strings.Join(lines, "\r\n") + "\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
	}
	card := func(lines ...string) string {
		return "BEGIN:VCARD\r\n" + strings.Join(lines, "\r\n") + "\r\nFN:Tove\r\nEND:VCARD\r\n"
	}
	printed := func(output string) string {
		return `{"cells":[{"cell_type":"code","source":"run()","outputs":[` + output + `]}]}`
	}
	for name, c := range map[string]struct{ path, content, want string }{
		"a weekly series":    {"a.ics", event("RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,TH;UNTIL=20251231"), "Repeats: every 2 weeks on Tuesday, Thursday until 2025-12-31"},
		"a monthly series":   {"a.ics", event("RRULE:FREQ=MONTHLY;BYDAY=-1FR;COUNT=5"), "Repeats: monthly on last Friday 5 times"},
		"a yearly series":    {"a.ics", event("RRULE:FREQ=YEARLY;BYMONTH=6;BYMONTHDAY=-1;BYSETPOS=1"), "Repeats: yearly on day last in June BYSETPOS=1"},
		"another rule":       {"a.ics", event("RRULE:D2 #10"), "Repeats: D2 #10"},
		"days that lack":     {"a.ics", event("EXDATE;TZID=Europe/Oslo:20250603T090000,20250610T090000"), "Not on: 2025-06-03 09:00 Europe/Oslo, 2025-06-10 09:00 Europe/Oslo"},
		"days besides":       {"a.ics", event("RDATE;VALUE=PERIOD:20250605T090000Z/PT1H"), "Also on: 2025-06-05 09:00 UTC"},
		"one that moved":     {"a.ics", event("RECURRENCE-ID;TZID=Europe/Oslo:20250603T090000"), "Replaces the date: 2025-06-03 09:00 Europe/Oslo"},
		"a whole day":        {"a.ics", event("DTSTART;VALUE=DATE:20250603", "DTEND;VALUE=DATE:20250604"), "When: 2025-06-03"},
		"whole days":         {"a.ics", event("DTSTART;VALUE=DATE:20250603", "DTEND;VALUE=DATE:20250606"), "When: 2025-06-03 to 2025-06-05"},
		"a description":      {"a.ics", event("X-ALT-DESC;FMTTYPE=text/html:<p>Bring <b>rope</b>.</p>"), "Bring rope."},
		"types of vCard 2.1": {"a.vcf", card("TEL;CELL;PREF:12"), "phone (cell): 12"},
		"types of vCard 3":   {"a.vcf", card("TEL;type=HOME;type=pref:12"), "phone (home): 12"},
		"types of vCard 4":   {"a.vcf", card(`TEL;VALUE=uri;TYPE="voice,home":tel:+47-12`), "phone (voice, home): +47-12"},
		"a label":            {"a.vcf", card("item1.TEL:12", "item1.X-ABLabel:Boat"), "phone (boat): 12"},
		"a label of Apple":   {"a.vcf", card("item1.X-ABLabel:_$!<Spouse>!$_", "item1.X-ABRELATEDNAMES:Ivo"), "related (spouse): Ivo"},
		"a day of birth":     {"a.vcf", card("BDAY:19700102"), "birthday: 1970-01-02"},
		"a nickname":         {"a.vcf", card("X-ANDROID-CUSTOM:vnd.android.cursor.item/nickname;Tovi;1;;;"), "nickname: Tovi"},
		"Latin letters":      {"a.vcf", card("NOTE;CHARSET=ISO-8859-1;ENCODING=QUOTED-PRINTABLE:B=E5t og =", "r=F8r"), "note: Båt og rør"},
		"colors":             {"a.ipynb", printed(`{"text":"\u001b[1;32mok\u001b[0m"}`), "ok"},
		"a bar of progress":  {"a.ipynb", printed(`{"text":["10%\r50%\r100%\r\n","done\n"]}`), "100%\ndone"},
		"a table":            {"a.ipynb", printed(`{"data":{"text/html":["<table><tr><td>tide</td></tr></table>"]}}`), "tide"},
		"a formula":          {"a.ipynb", printed(`{"data":{"text/latex":"$x^2$"}}`), "$x^2$"},
		"a value":            {"a.ipynb", printed(`{"data":{"application/json":{"a":1},"text/plain":"<IPython.core.display.JSON object>"}}`), `{"a":1}`},
	} {
		points, reason := cutAll(t, estimate.File{Path: c.path, Content: c.content}, time.UTC)
		if reason != "" || len(points) != 1 || !strings.Contains("\n"+points[0].Content+"\n", "\n"+c.want+"\n") {
			t.Errorf("%s: %s %+v", name, reason, points)
		}
	}
	// A time of writing is in the zone that it names; in one that is not known it is unread.
	for zone, want := range map[string]string{"Europe/Oslo": "2025-06-02T05:00", "Somewhere": "2025-06-02T06:00"} {
		text := strings.Replace(event("LAST-MODIFIED:20250602T060000Z"), "DTSTAMP:20250602T070000Z", "DTSTAMP;TZID="+zone+":20250602T070000", 1)
		points, _ := cutAll(t, estimate.File{Path: "a.ics", Content: text}, time.UTC)
		if len(points) != 1 || points[0].At.Format("2006-01-02T15:04") != want {
			t.Errorf("%s: %+v", zone, points)
		}
	}
}

// What is left out of a file is counted, with the first place.
func TestCut_Remarks(t *testing.T) {
	for name, c := range map[string]struct {
		path, content string
		want          []string
	}{
		"entries without words": {"a.ics", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:1\nEND:VEVENT\nBEGIN:VEVENT\nUID:2\nDTSTAMP:20250602T070000Z\nSUMMARY:x\nEND:VEVENT\n", []string{"no-words 1 1"}},
		"lines that are none":   {"a.vcf", "BEGIN:VCARD\nnot one\nFN:a\nREV:20250602T070000Z\nEND:VCARD", []string{"unreadable 1 "}},
		"a picture":             {"a.vcf", "BEGIN:VCARD\nFN:a\nUID:u\nPHOTO:x\nREV:20250602T070000Z\nEND:VCARD", []string{"not-text 1 a.vcf#u"}},
		"records without words": {"a.json", `[{"id":1,"date":"2025-06-02"},{},{"a":null}]`, []string{"no-words 2 element 2"}},
		"cues":                  {"2025-06-02.vtt", "WEBVTT\n\n00:00.000 --> 00:01.000\nAna: a\n\n00:02-->00:03\nb\n", []string{"unreadable 1 line 6"}},
		"chat":                  {"a.txt", "[02/06/2025, 10:15] Ana: a\n[02/06/2025, 10:16] Ana: \n[02/06/2025, 10:17] Bo left\n[02/06/2025, 10:18] Bo: b\n", []string{"program-lines 1 line 3", "no-words 1 "}},
		"bad characters":        {"2025-06-02.txt", "a \ufffd b", []string{"bad-bytes 1 2025-06-02.txt"}},
		"no time":               {"a.csv", "id,date,x\n1,2025-06-02,a\n2,someday,b\n3,,c\n", []string{"no-time 2 a.csv#2"}},
		"nothing":               {"2025-06-02.txt", "tea", nil},
	} {
		file := estimate.File{Path: c.path, Content: c.content}
		origin, err := estimate.Cut(t.Context(), file, time.UTC, func(estimate.Point) error { return nil })
		if err != nil {
			t.Fatal(name, err)
		}
		var got []string
		for _, r := range origin.Remarks {
			got = append(got, strings.Join([]string{string(r.Code), strings.Fields(r.Text)[0], r.First}, " "))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s\n%s", name, diff)
		}
	}
	// A data point that comes twice is counted in the row of the second file.
	e := estimateOf(t, 0, estimate.Room{}, estimate.File{Path: "a.txt", Content: "tea"}, estimate.File{Path: "a.txt", Content: "tea"})
	if r := e.Files[1].Remarks; len(r) == 0 || r[len(r)-1].Code != estimate.Repeated || e.Points != 1 {
		t.Errorf("the remarks are %+v", r)
	}
}

// Values with their types, as databases export them, are the values.
func TestCut_TypedValues(t *testing.T) {
	for value, want := range map[string]string{
		`{"$timestamp":{"t":1748934245,"i":1}}`:                  "2025-06-03T07:04:05Z created: 1748934245",
		`{"$date":{"$numberLong":"1748934245000"}}`:              "2025-06-03T07:04:05Z created: 1748934245000",
		`{"seconds":1748934245,"nanos":5}`:                       "2025-06-03T07:04:05Z created.seconds: 1748934245\ncreated.nanos: 5",
		`{"_seconds":1748934245}`:                                "2025-06-03T07:04:05Z created._seconds: 1748934245",
		`{"$ref":"users","$id":{"$oid":"aa"}}`:                   "0001-01-01T00:00:00Z created: aa",
		`{"$regularExpression":{"pattern":"a.b","options":"i"}}`: "0001-01-01T00:00:00Z created: a.b",
		`{"$binary":{"base64":"AAAA","subType":"04"}}`:           "0001-01-01T00:00:00Z created: AAAA",
		`{"$other":[{"a":"kept"}]}`:                              "0001-01-01T00:00:00Z created.$other.1.a: kept",
	} {
		points, reason := cutAll(t, estimate.File{Path: "a.jsonl", Content: `{"created":` + value + `}`}, time.UTC)
		if reason != "" || len(points) != 1 || points[0].At.Format(time.RFC3339)+" "+points[0].Content != want {
			t.Errorf("%s: %s %+v", value, reason, points)
		}
	}
}

// A file of an export is not cut into data points that others could read.
func TestRecords_Private(t *testing.T) {
	for content, skipped := range map[string]bool{
		`{"id":"a","identity":"ana","content":"x"}` + "\n" + `{"id":"b","identity":"ana","private":true,"content":"y"}`: true,
		`{"id":"a","identity":"ana","private":false,"content":"x"}` + "\n" + `{"id":"b","private":true,"content":"y"}`:  false,
		`{"name":"annals","private":true,"description":"a repository"}` + "\n" + `{"name":"b","private":true}`:          false,
	} {
		f, err := estimate.Decoded(t.Context(), "export.jsonl", "", []byte(content))
		runtest.Must(t, err)
		_, err = estimate.Cut(t.Context(), f, time.UTC, func(estimate.Point) error { return nil })
		if _, is := errors.AsType[*estimate.Skip](err); is != skipped || err != nil && !is {
			t.Errorf("%s: %v, skipped %t", content, err, is)
		}
	}
}
