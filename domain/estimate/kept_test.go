package estimate_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/hostiletest"
	"github.com/annals-project/annals/internal/runtest"
)

// longPath has as many bytes as a path may.
var longPath = strings.Repeat("\U00010348", limit.EstimatePath-4)

// A plan keeps a few bytes of each data point, and its path once: 202 KB with such a path become 66,000 rows.
func TestPlan_KeepsFewBytes(t *testing.T) {
	const rows = 20_000
	f := estimate.File{Path: longPath + ".csv", Content: "n\n" + strings.Repeat("x\n", rows)}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p := planOf(t, limit.EstimateRows, f)
	e, err := p.Estimate(t.Context(), estimate.Room{})
	runtest.Must(t, err)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if e.Points != rows {
		t.Fatalf("%d data points", e.Points)
	}
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > 100*rows+1<<20 {
		t.Errorf("%d bytes are kept of %d data points", kept, rows)
	}
	if most := e.WindowBytes(); most > 34<<20 {
		t.Errorf("a window has %d bytes", most)
	}
	runtime.KeepAlive(p)
}

// An id that many files or rows have is numbered in linear time: 10,000 files of one path took 50 million tries.
func TestPlan_EqualIDsInLinearTime(t *testing.T) {
	allocated := func(add func(p *estimate.Plan, n int), n int) (bytes uint64) {
		var before, after runtime.MemStats
		p := estimate.NewPlan(time.UTC, 0)
		runtime.ReadMemStats(&before)
		add(p, n)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	file := func(p *estimate.Plan, path, content string) {
		runtest.Must(t, p.AddFile(t.Context(), estimate.File{Path: path, Content: content}))
	}
	for name, add := range map[string]func(p *estimate.Plan, n int){
		"files": func(p *estimate.Plan, n int) {
			for i := range n {
				file(p, "a.txt", fmt.Sprint("tea ", i))
			}
		},
		"rows": func(p *estimate.Plan, n int) {
			var b strings.Builder
			for i := range n {
				_, _ = fmt.Fprintf(&b, "7,%d\n", i)
			}
			file(p, "a.csv", "id,n\n"+b.String())
			file(p, "a.csv", "id,m\n"+b.String())
		},
		"skipped files": func(p *estimate.Plan, n int) {
			for i := range n {
				file(p, "a.txt", fmt.Sprint("tea ", i))
				file(p, "a.txt", strings.Repeat("x", 20_000)+"\x00")
			}
		},
	} {
		const n = 500
		once, twice := allocated(add, n), allocated(add, 2*n)
		if twice > once*5/2+1<<20 {
			t.Errorf("%s: %d take %d bytes, %d take %d", name, n, once, 2*n, twice)
		}
	}
}

// What is kept and what is made of a request is bounded: the file that passes a bound is skipped with the reason,
// and leaves nothing.
func TestPlan_BoundsOfWork(t *testing.T) {
	table := estimate.File{Path: "t.csv", Content: "n\n" + strings.Repeat("x\n", 100)}
	note := estimate.File{Path: "a.txt", Content: "tea"}
	for name, c := range map[string]struct {
		kept, made int64
		skipped    string
	}{
		"nothing used": {0, 0, ""},
		"kept":         {limit.EstimateKept - 5000, 0, "keep more than 67108864 bytes"},
		"made":         {0, limit.EstimateMade - 1000, "more than 2147483648 bytes"},
	} {
		p := estimate.NewPlan(time.UTC, -1)
		p.Use(c.kept, c.made)
		for _, f := range []estimate.File{note, table, note} {
			runtest.Must(t, p.AddFile(t.Context(), f))
		}
		e, err := p.Estimate(t.Context(), estimate.Room{})
		runtest.Must(t, err)
		if got := e.Files[1].Skipped; (got == "") != (c.skipped == "") || !strings.Contains(got, c.skipped) {
			t.Errorf("%s: skipped because it %q", name, got)
		}
		if want := map[bool]int{true: 101, false: 1}[c.skipped == ""]; e.Points != want {
			t.Errorf("%s: %d data points, want %d", name, e.Points, want)
		}
	}
	p := estimate.NewPlan(time.UTC, 0)
	p.Use(limit.EstimateKept-1000, 0)
	if err := p.AddFile(t.Context(), estimate.File{Path: longPath, Content: "tea"}); !errors.Is(err, estimate.ErrKept) {
		t.Errorf("a path that cannot be kept: %v", err)
	}
}

// A skipped file gives its numbers back: later files get the ids that they would get without it.
func TestPlan_SkippedFileLeavesNumbers(t *testing.T) {
	row := func(n int) string { return fmt.Sprintf("a,%d\n", n) }
	first := estimate.File{Path: "t.csv", Content: "id,n\n" + row(1)}
	second := estimate.File{Path: "t.csv", Content: "id,n\n" + row(2)}
	wide := estimate.File{Path: "t.csv", Content: "id,n\n" + row(3) + row(4) + strings.Repeat(",", 2000) + "\n"}
	e := estimateOf(t, -1, estimate.Room{}, first, wide, second, wide, first)
	if e.Files[1].Skipped == "" {
		t.Fatal("the wide file is not skipped")
	}
	if diff := cmp.Diff([]string{"t.csv#a", "t.csv#a~2"}, ids(e)); diff != "" {
		t.Error(diff)
	}
}

// Rows are the same in windows of any size. They are in the order of the plan over all files, with the data points
// that were left out and numbered.
func TestEstimate_Windows(t *testing.T) {
	files := shortPaths(hostiletest.Files(4, 1000))
	for n := range 6 {
		files = append(files, estimate.File{
			Path: "t.csv", Content: fmt.Sprintf("id,date,n\n1,2025-01-%02d,x\n2,2024-01-%02d,%d\n3,2025-02-01,%d\n", n+1, 9-n, n%2, n),
		})
	}
	files = append(files, files[:20]...)
	for _, shown := range []int{-1, 100} {
		whole := estimateOf(t, shown, estimate.Room{}, files...)
		p := planOf(t, shown, files...)
		p.SetWindow(whole.WindowBytes() / 8)
		parts := estimatedOf(t, p, estimate.Room{}, files)
		if diff := cmp.Diff(whole.Rows, parts.Rows); diff != "" {
			t.Errorf("%d shown (-whole +in parts):\n%.2000s", shown, diff)
		}
		if whole.Shown != len(whole.Rows) || shown < 0 && whole.Shown != whole.Points {
			t.Errorf("%d of %d rows are shown: want %d", len(whole.Rows), whole.Points, shown)
		}
		if !slices.IsSortedFunc(whole.Rows, func(a, b estimate.Row) int {
			if a.At.IsZero() || b.At.IsZero() {
				return map[bool]int{true: 1}[a.At.IsZero() && !b.At.IsZero()]
			}
			return a.At.Compare(b.At)
		}) {
			t.Error("the rows are not in the order of their times")
		}
		unique := map[string]bool{}
		for _, r := range whole.Rows {
			if r.ID == "" || unique[r.ID] {
				t.Errorf("the id %q is empty or comes twice", r.ID)
			}
			unique[r.ID] = true
		}
	}
}

// A file that is another one when it is read again is an error, not another answer.
func TestEstimate_WindowOfAnotherFile(t *testing.T) {
	f := estimate.File{Path: "t.csv", Content: "id\n1\n2\n"}
	e, err := planOf(t, -1, f).Estimate(t.Context(), estimate.Room{})
	runtest.Must(t, err)
	for _, content := range []string{"id\n1\n", "id\n1\n3\n", " "} {
		_, err := e.Window(t.Context(), 0, estimate.Source{File: func(int) (estimate.File, error) {
			return estimate.File{Path: f.Path, Content: content}, nil
		}})
		if err == nil {
			t.Errorf("%q gives rows", content)
		}
	}
}

// The end of the context ends a plan, its order and its windows.
func TestPlan_EndsWithContext(t *testing.T) {
	f := estimate.File{Path: "a.csv", Content: "n\n" + strings.Repeat("x\n", 100_000)}
	ctx := &checked{Context: t.Context(), last: 3}
	if err := estimate.NewPlan(time.UTC, 0).AddFile(ctx, f); !errors.Is(err, context.Canceled) || ctx.checks != 3 {
		t.Errorf("add: %v after %d checks", err, ctx.checks)
	}
	p := planOf(t, -1, f)
	ctx = &checked{Context: t.Context(), last: 3}
	if _, err := p.Estimate(ctx, estimate.Room{}); !errors.Is(err, context.Canceled) || ctx.checks != 3 {
		t.Errorf("estimate: %v after %d checks", err, ctx.checks)
	}
	e, err := p.Estimate(t.Context(), estimate.Room{})
	runtest.Must(t, err)
	ctx = &checked{Context: t.Context(), last: 3}
	source := estimate.Source{File: func(int) (estimate.File, error) { return f, nil }}
	if _, err := e.Window(ctx, 0, source); !errors.Is(err, context.Canceled) || ctx.checks != 3 {
		t.Errorf("window: %v after %d checks", err, ctx.checks)
	}
}
