package importer

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/estimate"
)

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
