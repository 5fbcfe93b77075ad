package importer

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/internal/sources"
)

// casesVariable names the environment variable with the folder of the open cases.
const casesVariable = "ANNALS_TEST_CASES"

// fileCase is files with what they must become.
type fileCase struct {
	Case       string                     `json:"case"`
	Files      []string                   `json:"files"`
	TimeZone   string                     `json:"timeZone"`
	Kind       string                     `json:"kind"`
	Points     *int                       `json:"points"`
	Times      []string                   `json:"times"`
	TimesByID  map[string]json.RawMessage `json:"timesById"`
	EveryTime  string                     `json:"everyTime"`
	Identities []string                   `json:"identities"`
	Labels     []string                   `json:"labels"`
	LabelsLack []string                   `json:"labelsLack"`
	Contains   []string                   `json:"contains"`
	Lacks      []string                   `json:"lacks"`
	Once       []string                   `json:"once"`
}

// readCases are those that this version reads; the others are of chats, transcripts, tables and code.
var readCases = []string{"A12", "A12b", "A14", "A15", "A15b", "A16", "A17", "A18", "A27", "A29", "A31", "B4"}

// madeOf is what a case became, by one of the ways in.
type madeOf struct {
	kind   string
	points []estimate.Row
	files  []estimate.FileTotal
}

// The files of the open cases become the same over each of the ways in: as text over the API, as files of the command
// line, and as bytes of the console.
func TestCases_Files(t *testing.T) {
	folder := os.Getenv(casesVariable)
	if folder == "" {
		t.Skipf("%s names no folder of cases", casesVariable)
	}
	text, err := os.ReadFile(filepath.Join(folder, "expect.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for line := range bytes.Lines(text) {
		var c fileCase
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(readCases, c.Case) {
			continue
		}
		ran++
		for way, make := range map[string]func(*testing.T, string, fileCase) madeOf{
			"API": overAPI, "command line": overCLI, "console": overConsole,
		} {
			t.Run(c.Case+" over "+way, func(t *testing.T) { c.check(t, make(t, folder, c)) })
		}
	}
	if ran != len(readCases) {
		t.Errorf("%d of %d cases are there", ran, len(readCases))
	}
}

func (c fileCase) zone(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(c.TimeZone) // UTC for none
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// planned makes the data points of files.
func (c fileCase) planned(t *testing.T, files []estimate.File) madeOf {
	t.Helper()
	plan := estimate.NewPlan(c.zone(t), -1)
	for _, f := range files {
		if err := plan.AddFile(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	return c.rows(t, plan, estimate.Source{File: func(i int) (estimate.File, error) { return files[i], nil }})
}

func (c fileCase) rows(t *testing.T, plan *estimate.Plan, source estimate.Source) (made madeOf) {
	t.Helper()
	e, err := plan.Estimate(t.Context(), estimate.Room{})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := e.Rows(t.Context(), source, func() {})
	if err != nil {
		t.Fatal(err)
	}
	for row, err := range rows {
		if err != nil {
			t.Fatal(err)
		}
		made.points = append(made.points, *row)
	}
	made.files, made.kind = e.Files, string(e.Files[len(e.Files)-1].Kind)
	return made
}

func overAPI(t *testing.T, folder string, c fileCase) madeOf {
	t.Helper()
	var files []estimate.File
	for _, name := range c.Files {
		raw, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.Valid(raw) {
			t.Skip("the API takes text")
		}
		files = append(files, estimate.File{Path: name, Content: string(raw)})
	}
	return c.planned(t, files)
}

func overCLI(t *testing.T, folder string, c fileCase) madeOf {
	t.Helper()
	var found []sources.File
	for _, name := range c.Files {
		f, err := sources.Find(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		f[0].Name = name
		found = append(found, f...)
	}
	var files []estimate.File
	for request, err := range sources.Requests(t.Context(), found, "") {
		if err != nil || len(request.Skipped) > 0 {
			t.Fatal(err, request.Skipped)
		}
		sent, err := json.Marshal(request.Files) // text is all that arrives
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(sent, &request.Files); err != nil {
			t.Fatal(err)
		}
		for _, f := range request.Files {
			files = append(files, estimate.File{Path: f.Path, Content: f.Content})
		}
	}
	return c.planned(t, files)
}

func overConsole(t *testing.T, folder string, c fileCase) madeOf {
	t.Helper()
	lines, made, err := Cut(t.Context(), c.zone(t), "", len(c.Files), func(i int) (Bytes, error) {
		raw, err := os.ReadFile(filepath.Join(folder, c.Files[i]))
		return Bytes{Path: c.Files[i], Content: raw}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	out := madeOf{files: made.Files, kind: string(made.Files[len(made.Files)-1].Kind)}
	for text := range bytes.Lines(lines) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatal(err)
		}
		p := estimate.Point{ID: l.ID, Content: l.Content, Label: l.Label, Identity: l.Identity, Metadata: l.Metadata}
		if l.Timestamp != nil {
			p.At = *l.Timestamp
		}
		out.points = append(out.points, estimate.Row{Point: p})
	}
	return out
}

// check compares what files became with what they must become.
func (c fileCase) check(t *testing.T, made madeOf) {
	t.Helper()
	var times, identities, labels []string
	var all strings.Builder
	for _, p := range made.points {
		at := ""
		if !p.At.IsZero() {
			at = p.At.UTC().Format(time.RFC3339Nano)
		}
		times, identities, labels = append(times, at), append(identities, p.Identity), append(labels, p.Label)
		all.WriteString(p.Content + "\n" + p.Label + "\n" + metadataTexts(p.Metadata) + "\n")
		if c.EveryTime != "" && at != c.EveryTime {
			t.Errorf("%s is of %q: want %s", p.ID, at, c.EveryTime)
		}
		c.checkTime(t, p.ID, at)
	}
	if c.Kind != "" && made.kind != c.Kind {
		t.Errorf("the kind is %s: want %s", made.kind, c.Kind)
	}
	if c.Points != nil && len(made.points) != *c.Points {
		t.Errorf("%d data points: want %d", len(made.points), *c.Points)
	}
	for what, pair := range map[string][2][]string{
		"times": {times, c.Times}, "identities": {identities, c.Identities}, "labels": {labels, c.Labels},
	} {
		for _, want := range pair[1] {
			if !slices.Contains(pair[0], want) {
				t.Errorf("%s are %q: want %q", what, pair[0], want)
			}
		}
	}
	text := all.String()
	for _, want := range c.Contains {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, not := range c.Lacks {
		if strings.Contains(text, not) {
			t.Errorf("%q is in\n%s", not, text)
		}
	}
	for _, once := range c.Once {
		if n := strings.Count(text, once); n != 1 {
			t.Errorf("%q is there %d times", once, n)
		}
	}
	for _, not := range c.LabelsLack {
		if strings.Contains(strings.Join(labels, "\n"), not) {
			t.Errorf("%q is in the labels %q", not, labels)
		}
	}
	c.checkUntimed(t, made, slices.DeleteFunc(times, func(at string) bool { return at != "" }))
}

// checkTime checks the time of a data point whose id ends as the case names it.
func (c fileCase) checkTime(t *testing.T, id, at string) {
	t.Helper()
	for end, want := range c.TimesByID {
		if !strings.HasSuffix(id, end) {
			continue
		}
		var one *string
		var several []string
		if json.Unmarshal(want, &several) != nil {
			if err := json.Unmarshal(want, &one); err != nil {
				t.Fatal(err)
			}
			several = []string{""}
			if one != nil {
				several = []string{*one}
			}
		}
		if !slices.Contains(several, at) && !(several == nil && at == "") {
			t.Errorf("%s is of %q: want one of %q", id, at, several)
		}
	}
}

// checkUntimed checks that the rows of the files count the data points without a time.
func (c fileCase) checkUntimed(t *testing.T, made madeOf, untimed []string) {
	t.Helper()
	counted := 0
	for _, f := range made.files {
		for _, r := range f.Remarks {
			if r.Code == estimate.NoTime {
				counted += r.Count
			}
		}
	}
	if counted != len(untimed) {
		t.Errorf("%d data points without a time are counted: want %d", counted, len(untimed))
	}
}

func metadataTexts(metadata json.RawMessage) string {
	var values map[string]any
	if json.Unmarshal(metadata, &values) != nil {
		return ""
	}
	var b strings.Builder
	for _, v := range values {
		switch v := v.(type) {
		case string:
			b.WriteString(v + "\n")
		case []any:
			for _, inner := range v {
				if s, ok := inner.(string); ok {
					b.WriteString(s + "\n")
				}
			}
		}
	}
	return b.String()
}
