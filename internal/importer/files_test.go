package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/estimate"
)

// estimator makes a data point of each file, and a batch of each two. It breaks off breaksOff times before.
type estimator struct{ breaksOff int }

func (e *estimator) EstimateFull(
	_ context.Context, in client.EstimateRequest, begin func() error, each func(client.EstimatedPoint) error,
) (*client.Estimate, error) {
	out := new(client.Estimate)
	for {
		if err := begin(); err != nil {
			return out, err
		}
		for i, f := range in.Files {
			if e.breaksOff > 0 && i == 1 {
				break
			}
			at := day(f.Path)
			p := client.EstimatedPoint{ID: "of " + f.Path, Path: &f.Path, Content: &f.Content, Timestamp: at, Bytes: len(f.Content)}
			if err := each(p); err != nil {
				return out, err
			}
		}
		if e.breaksOff--; e.breaksOff < 0 {
			break
		}
	}
	for some := range slices.Chunk(in.Files, 2) {
		b := client.EstimatedBatch{From: day(some[0].Path), Points: len(some), IdempotencyKey: "key"}
		for _, f := range some {
			b.IdempotencyKey += " " + f.Path
			b.Bytes += int64(len(f.Content))
		}
		out.Batches = append(out.Batches, b)
	}
	out.DataPoints = len(in.Files)
	return out, nil
}

// day is the time of a file named by the day of a month; nil for 0.
func day(name string) *time.Time {
	var n int
	if _, err := fmt.Sscan(name, &n); err != nil || n == 0 {
		return nil
	}
	at := time.Date(2025, 5, n, 0, 0, 0, 0, time.UTC)
	return &at
}

// spoolOf estimates files in several requests, each a list of names.
func spoolOf(t *testing.T, e *estimator, requests ...string) *Spool {
	t.Helper()
	s, err := NewSpool()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, names := range requests {
		var in client.EstimateRequest
		for _, name := range strings.Fields(names) {
			in.Files = append(in.Files, client.EstimateFile{Path: name, Content: "<" + name + ">\n"})
		}
		if _, err := s.Add(t.Context(), e, in, Choice{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func stateAt(t *testing.T, path string) *FilesState {
	t.Helper()
	s, err := OpenFilesState(path, Target{Server: "here"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestFiles_InTheOrderOfTime(t *testing.T) {
	s, to := spoolOf(t, &estimator{breaksOff: 2}, "3 4 5 6 0", "1 2 7 8"), &server{}
	total, err := Files{To: to, Spool: s, State: stateAt(t, filepath.Join(t.TempDir(), "p")), Parallel: 1}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.ReplaceAll(strings.Join(to.taken, ""), "\n", ""); got != "<1><2><3><4><5><6><7><8><0>" {
		t.Errorf("sent %s", got)
	}
	want := FilesTotal{Points: 9, Batches: 5, Bytes: s.Bytes(), Sent: 9, SentBatches: 5, ProjectID: 1, LastIngestion: "send-4"}
	if diff := cmp.Diff(want, total); diff != "" {
		t.Error(diff)
	}
}

func TestFiles_ContinuesAfterAStop(t *testing.T) {
	for stop := range 4 {
		to, path := &server{}, filepath.Join(t.TempDir(), "p")
		sent := 0
		to.refuse = func([]string) error {
			if sent++; sent > stop {
				return errors.New("away")
			}
			return nil
		}
		first, err := Files{To: to, Spool: spoolOf(t, &estimator{}, "1 2 3 4 5 6"), State: stateAt(t, path), Parallel: 1}.Run(t.Context())
		if (err == nil) != (stop == 3) || first.Batches != stop {
			t.Fatalf("stopped after %d: %+v, %v", stop, first, err)
		}
		to.refuse = nil
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if stop == 2 { // a crash cut the last line
			if err := os.WriteFile(path, text[:len(text)-5], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		last, err := Files{To: to, Spool: spoolOf(t, &estimator{}, "1 2 3 4 5 6"), State: stateAt(t, path)}.Run(t.Context())
		if err != nil || last.Points != 6 || len(to.taken) != 6 || stop < 2 && last.SentBatches != 3-stop {
			t.Errorf("stopped after %d: %+v, %q, %v", stop, last, to.taken, err)
		}
	}
}

func TestFiles_BatchesInFlight(t *testing.T) {
	names := strings.Repeat("1 2 3 4 5 6 7 8 ", 1)
	to := &server{delay: func(string) time.Duration { return 10 * time.Millisecond }}
	if _, err := (Files{
		To: to, Spool: spoolOf(t, &estimator{}, names), State: stateAt(t, filepath.Join(t.TempDir(), "p")), Parallel: 3,
	}).Run(t.Context()); err != nil || to.most > 3 || len(to.taken) != 8 {
		t.Errorf("at most %d in flight, %d sent, %v", to.most, len(to.taken), err)
	}
}

func TestFiles_RefusalNamesTheFile(t *testing.T) {
	to := &server{refuse: func([]string) error {
		return &client.APIError{Status: 400, Code: "project-mismatch", Message: "items[1] is of another project"}
	}}
	_, err := Files{
		To: to, Spool: spoolOf(t, &estimator{}, "1 2"), State: stateAt(t, filepath.Join(t.TempDir(), "p")),
	}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "a data point of 2 was refused") {
		t.Errorf("got %v", err)
	}
}

func TestOpenFilesState_OtherFiles(t *testing.T) {
	for name, text := range map[string]string{
		"text": "Dear Ana,", "line": "Dear Ana,\n", "points": `{"version":1,"importId":"x"}` + "\n", "json": "{}\n",
	} {
		path := filepath.Join(t.TempDir(), "p")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := OpenFilesState(path, Target{Server: "here"}); err == nil {
			_ = s.Close()
			t.Errorf("%s is taken for the progress of an import", name)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s was changed to %q, %v", name, got, err)
		}
	}
}

func TestOpenFilesState_AnotherProject(t *testing.T) {
	const line = `{"sent":"key 1 2","projectId":1,"ingestion":"i"}` + "\n"
	here := Target{Server: "here", Project: "p1"}
	for name, c := range map[string]struct {
		header string
		to     Target
		keeps  bool
		notice string
	}{
		"same":                             {`{"version":2,"server":"here","project":"p1"}`, here, true, ""},
		"same at another address":          {`{"version":2,"server":"there","project":"p1"}`, here, true, ""},
		"earlier version":                  {`{"version":2,"server":"here"}`, here, false, "an earlier version wrote it"},
		"another store at the address":     {`{"version":2,"server":"here","project":"p2"}`, here, false, "another data folder"},
		"another store":                    {`{"version":2,"server":"there","project":"p2"}`, here, false, "at there"},
		"server that names no project":     {`{"version":2,"server":"here"}`, Target{Server: "here"}, true, ""},
		"another that names no project":    {`{"version":2,"server":"there"}`, Target{Server: "here"}, false, "at there"},
		"earlier version, another address": {`{"version":2,"server":"there"}`, here, false, "at there"},
	} {
		path := filepath.Join(t.TempDir(), "p")
		if err := os.WriteFile(path, []byte(c.header+"\n"+line), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time the file is that of this project
			s, err := OpenFilesState(path, c.to)
			if err != nil {
				t.Fatal(name, err)
			}
			kept, asNoticed := len(s.sent) == 1, strings.Contains(s.Notice, c.notice) && (c.notice == "") == (s.Notice == "")
			if kept != c.keeps || !asNoticed {
				t.Errorf("%s: kept %v, notice %q", name, kept, s.Notice)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			c.notice = ""
		}
	}
}

func TestState_ContinuesForTheSameProjectOnly(t *testing.T) {
	before := NewState(Target{Server: "here", Project: "p1"})
	before.Offset, before.ProjectID = 7, 1
	got, notice := before.Continue("f", Target{Server: "there", Project: "p1"})
	if got.Offset != 7 || got.ImportID != before.ImportID || got.Server != "there" || notice != "" {
		t.Errorf("same project: %+v, %q", got, notice)
	}
	got, notice = before.Continue("f", Target{Server: "here", Project: "p2"})
	if got.Offset != 0 || got.ProjectID != 0 || got.Project != "p2" || !strings.Contains(notice, "another data folder") {
		t.Errorf("another project: %+v, %q", got, notice)
	}
	before.Project = ""
	got, notice = before.Continue("f", Target{Server: "here", Project: "p1"})
	if got.Offset != 0 || got.Project != "p1" || got.ImportID != before.ImportID || !strings.Contains(notice, "earlier version") {
		t.Errorf("earlier version: %+v, %q", got, notice)
	}
}

func TestFiles_AnotherProject(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p")
	if err := os.WriteFile(path, []byte(`{"version":2,"server":"here"}`+"\n"+
		`{"sent":"key 1 2","projectId":7,"ingestion":"i"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Files{To: &server{}, Spool: spoolOf(t, &estimator{}, "1 2 3"), State: stateAt(t, path)}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another project") {
		t.Errorf("got %v", err)
	}
}

func TestSpool_BatchesDoNotMatch(t *testing.T) {
	s := spoolOf(t, &estimator{})
	for _, points := range []int{0, 1, 3} {
		e := &client.Estimate{Batches: []client.EstimatedBatch{{Points: points, IdempotencyKey: "k"}}}
		if err := s.cut(e, []int64{3, 9}, 9); err == nil {
			t.Errorf("a batch of %d of 2 data points is taken", points)
		}
	}
}

// local estimates files as the service does.
type local struct{ left *json.Number }

func (l local) EstimateFull(
	ctx context.Context, in client.EstimateRequest, begin func() error, each func(client.EstimatedPoint) error,
) (*client.Estimate, error) {
	if err := begin(); err != nil {
		return nil, err
	}
	plan := estimate.NewPlan(time.UTC, -1)
	read := func(i int) (estimate.File, error) {
		return estimate.File{Path: in.Files[i].Path, Content: in.Files[i].Content}, nil
	}
	for i := range in.Files {
		f, _ := read(i) // never fails
		if err := plan.AddFile(ctx, f); err != nil {
			return nil, err
		}
	}
	made, err := plan.Estimate(ctx, estimate.Room{})
	if err != nil {
		return nil, err
	}
	rows, err := made.Rows(ctx, estimate.Source{File: read}, func() {})
	if err != nil {
		return nil, err
	}
	for r, err := range rows {
		if err != nil {
			return nil, err
		}
		kind := string(r.Kind)
		p := client.EstimatedPoint{
			ID: r.ID, Kind: &kind, Path: &r.Path, Content: &r.Content, Label: &r.Label, Bytes: r.Bytes, Metadata: r.Metadata,
		}
		if !r.At.IsZero() {
			p.Timestamp = &r.At
		}
		if err := each(p); err != nil {
			return nil, err
		}
	}
	out := &client.Estimate{DataPoints: made.Points, Metered: true, Balance: client.EstimateBalance{Left: l.left}}
	for _, f := range made.Files {
		row := client.EstimatedFile{Path: f.Path, Points: f.Points}
		for _, r := range f.Remarks {
			row.Remarks = append(row.Remarks, client.EstimateRemark{Code: string(r.Code), Count: r.Count})
		}
		out.Files = append(out.Files, row)
	}
	for b := range made.Batches() {
		out.Batches = append(out.Batches, client.EstimatedBatch{
			Points: b.Points, Bytes: b.Bytes, IdempotencyKey: b.IdempotencyKey,
		})
	}
	return out, nil
}

// Only what was chosen is priced and sent: since a time, or of some kinds.
func TestSpool_Choice(t *testing.T) {
	request := client.EstimateRequest{Files: []client.EstimateFile{
		{Path: "a.csv", Content: "id,date,text\n1,2025-05-01,one\n2,2025-05-02,two\n3,,three\n4,2025-05-03,four\n"},
		{Path: "b.txt", Content: "five"},
		{Path: "2025-05-04.txt", Content: "six"},
	}}
	day := time.Date(2025, 5, 2, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		choice Choice
		want   string
		rows   string
	}{
		"all":            {Choice{}, "1 2 4 six 3 five", "a.csv 4 no-time:1 b.txt 1 no-time:1 2025-05-04.txt 1"},
		"since":          {Choice{Since: day}, "2 4 six", "a.csv 2 not-chosen:2 b.txt 0 not-chosen:1 2025-05-04.txt 1"},
		"kind":           {Choice{Kinds: []string{"notes"}}, "six five", "a.csv 0 not-chosen:4 b.txt 1 no-time:1 2025-05-04.txt 1"},
		"kind and since": {Choice{Since: day, Kinds: []string{"table", "chat"}}, "2 4", "a.csv 2 not-chosen:2 b.txt 0 not-chosen:1 2025-05-04.txt 0 not-chosen:1"},
		"none":           {Choice{Kinds: []string{"email"}}, "", "a.csv 0 not-chosen:4 b.txt 0 not-chosen:1 2025-05-04.txt 0 not-chosen:1"},
	} {
		spool, err := NewSpool()
		if err != nil {
			t.Fatal(err)
		}
		left := json.Number("2.5")
		e, err := spool.Add(t.Context(), local{&left}, request, c.choice)
		if err != nil {
			t.Fatal(name, err)
		}
		to := &server{}
		state := stateAt(t, filepath.Join(t.TempDir(), "p"))
		total, err := Files{To: to, Spool: spool, State: state, Parallel: 1}.Run(t.Context())
		if err != nil {
			t.Fatal(name, err)
		}
		var got, rows []string
		for _, content := range to.taken {
			content = strings.TrimPrefix(content, "id: ")
			content, _, _ = strings.Cut(content, "\n")
			got = append(got, content)
		}
		for _, f := range e.Files {
			rows = append(rows, f.Path, fmt.Sprint(f.Points))
			for _, r := range f.Remarks {
				rows = append(rows, fmt.Sprintf("%s:%d", r.Code, r.Count))
			}
		}
		if strings.Join(got, " ") != c.want || strings.Join(rows, " ") != c.rows || e.DataPoints != len(got) ||
			total.Sent != len(got) {
			t.Errorf("%s: sent %q, rows %q, %d data points", name, got, rows, e.DataPoints)
		}
		n := len(got)
		if name != "all" && (e.Credits.String() != fmt.Sprint(n) || e.FitsFirst != min(n, 2) || e.Fits != (n <= 2)) {
			t.Errorf("%s: %s credits, the first %d fit, %v", name, e.Credits, e.FitsFirst, e.Fits)
		}
		if err := spool.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
