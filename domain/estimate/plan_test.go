package estimate_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/runtest"
)

func planOf(t *testing.T, shown int, files ...estimate.File) *estimate.Plan {
	t.Helper()
	p := estimate.NewPlan(time.UTC, shown)
	for _, f := range files {
		runtest.Must(t, p.AddFile(t.Context(), f))
	}
	return p
}

// estimated is an estimate with all that it shows.
type estimated struct {
	*estimate.Estimate
	Rows    []estimate.Row
	Batches []estimate.Batch
}

// estimateOf estimates files for a room.
func estimateOf(t *testing.T, shown int, room estimate.Room, files ...estimate.File) estimated {
	t.Helper()
	return estimatedOf(t, planOf(t, shown, files...), room, files)
}

func estimatedOf(t *testing.T, p *estimate.Plan, room estimate.Room, files []estimate.File) estimated {
	t.Helper()
	made, err := p.Estimate(t.Context(), room)
	runtest.Must(t, err)
	e := estimated{Estimate: made, Batches: slices.Collect(made.Batches())}
	source := estimate.Source{File: func(i int) (estimate.File, error) { return files[i], nil }}
	for len(e.Rows) < e.Shown {
		rows, err := made.Window(t.Context(), len(e.Rows), source)
		runtest.Must(t, err)
		e.Rows = append(e.Rows, rows...)
	}
	return e
}

func ids(e estimated) (list []string) {
	for _, r := range e.Rows {
		list = append(list, r.ID)
	}
	return list
}

// Data points are in the order of their times over all files, those without a time last. The summary
// shows the first, in full or not.
func TestPlan_Order(t *testing.T) {
	files := []estimate.File{
		{Path: "b.csv", Content: "id,date,text\n1,2025-03-01,c\n2,2025-01-01,a\n3,,z\n"},
		{Path: "empty.txt", Content: " \n"},
		{Path: "2025-02-01.txt", Content: "b"},
	}
	want := []string{"b.csv#2", "2025-02-01.txt", "b.csv#1", "b.csv#3"}
	for shown, content := range map[int]bool{-1: true, 2: false, 0: false, 1000: false} {
		e := estimateOf(t, shown, estimate.Room{}, files...)
		first := want
		if shown >= 0 {
			first = want[:min(shown, len(want))]
		}
		if diff := cmp.Diff(append([]string{}, first...), append([]string{}, ids(e)...)); diff != "" {
			t.Errorf("%d shown: %s", shown, diff)
		}
		if len(e.Rows) > 0 && (e.Rows[0].Content != "") != content {
			t.Errorf("%d shown: content %q", shown, e.Rows[0].Content)
		}
		if e.Points != 4 || e.CreditTenths != 40 || !e.Fits() || len(e.Batches) != 1 {
			t.Errorf("%d shown: %+v", shown, e)
		}
		if b := e.Batches[0]; !b.From.Equal(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)) ||
			!b.To.Equal(time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("the batch is from %s to %s", b.From, b.To)
		}
		if e.Files[1].Skipped == "" || e.Files[1].Points != 0 || e.Files[0].Points != 3 {
			t.Errorf("files: %+v", e.Files)
		}
	}
}

// The key of a batch depends on everything that is sent and on nothing else.
func TestPlan_Keys(t *testing.T) {
	base := estimate.File{Path: "a.txt", Content: "tea"}
	key := func(f estimate.File, zone *time.Location) string {
		p := estimate.NewPlan(zone, 0)
		runtest.Must(t, p.AddFile(t.Context(), f))
		return estimatedOf(t, p, estimate.Room{}, nil).Batches[0].IdempotencyKey
	}
	first := key(base, time.UTC)
	if again := key(base, rome(t)); again != first {
		t.Error("the zone counts although there is no time")
	}
	for _, other := range []estimate.File{{Path: "b.txt", Content: "tea"}, {Path: "a.txt", Content: "Tea"}} {
		if key(other, time.UTC) == first {
			t.Errorf("%+v has the key of %+v", other, base)
		}
	}
	dated := estimate.File{Path: "2025-01-01.txt", Content: "tea"}
	if key(dated, time.UTC) == key(dated, rome(t)) {
		t.Error("the time does not count")
	}
	if len(first) > limit.IdempotencyKey {
		t.Errorf("the key has %d characters", len(first))
	}
}

// A batch ends at 500 data points, at 8 MiB, and before an id that it has. What is bigger is alone.
func TestPlan_Batches(t *testing.T) {
	item := func(id string, size int) estimate.Point {
		return estimate.Point{ID: id, Content: strings.Repeat("x", size)}
	}
	sizes := func(items ...estimate.Point) (list []int) {
		p := estimate.NewPlan(time.UTC, 0)
		for _, i := range items {
			runtest.Must(t, p.AddItem(i))
		}
		for _, b := range estimatedOf(t, p, estimate.Room{}, nil).Batches {
			list = append(list, b.Points)
		}
		return list
	}
	var many []estimate.Point
	for i := range limit.EstimateBatch + 1 {
		many = append(many, item(fmt.Sprint(i), 1))
	}
	const half = limit.EstimateBatchBytes / 2
	for name, c := range map[string]struct {
		items []estimate.Point
		want  []int
	}{
		"500":             {many[:limit.EstimateBatch], []int{500}},
		"501":             {many, []int{500, 1}},
		"8 MiB":           {[]estimate.Point{item("a", half), item("b", half)}, []int{2}},
		"a byte more":     {[]estimate.Point{item("a", half), item("b", half+1)}, []int{1, 1}},
		"metadata counts": {[]estimate.Point{{ID: "a", Content: strings.Repeat("x", half), Metadata: []byte("1")}, item("b", half)}, []int{1, 1}},
		"one too big":     {[]estimate.Point{item("a", 1), item("b", 2*half+1), item("c", 1)}, []int{1, 1, 1}},
		"repeated id":     {[]estimate.Point{item("a", 1), item("b", 1), item("a", 2), item("c", 1)}, []int{2, 2}},
	} {
		if diff := cmp.Diff(c.want, sizes(c.items...)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What fits is the beginning of the import, by the least of credits and data points.
func TestPlan_Fits(t *testing.T) {
	p := estimate.NewPlan(time.UTC, 0)
	for i, size := range []int{350, 351, 1} { // 1, 2 and 1 credits
		runtest.Must(t, p.AddItem(estimate.Point{ID: fmt.Sprint(i), Content: strings.Repeat("x", size)}))
	}
	for _, c := range []struct {
		credits, points *int64
		first           int
	}{
		{nil, nil, 3},
		{new(int64(40)), nil, 3},
		{new(int64(39)), nil, 2},
		{new(int64(29)), nil, 1},
		{new(int64(0)), nil, 0},
		{nil, new(int64(3)), 3},
		{nil, new(int64(2)), 2},
		{new(int64(10)), new(int64(2)), 1},
		{new(int64(40)), new(int64(0)), 0},
	} {
		e := estimatedOf(t, p, estimate.Room{CreditTenths: c.credits, Points: c.points}, nil)
		if e.FitsFirst != c.first || e.Fits() != (c.first == 3) || e.CreditTenths != 40 {
			t.Errorf("%+v: the first %d fit, %v", c, e.FitsFirst, e.Fits())
		}
	}
}

// Equal data points count once. Different ones with one id get ids of their own.
func TestPlan_RepeatedIDs(t *testing.T) {
	same := estimate.File{Path: "a.txt", Content: "tea"}
	e := estimateOf(t, -1, estimate.Room{}, same, same, estimate.File{Path: "a.txt", Content: "coffee"}, estimate.File{Path: "a.txt", Content: "milk"})
	if diff := cmp.Diff([]string{"a.txt", "a.txt~2", "a.txt~3"}, ids(e)); diff != "" {
		t.Error(diff)
	}
	if e.Files[1].Points != 0 || e.Files[1].Skipped != "" || len(e.Batches) != 1 {
		t.Errorf("%+v", e)
	}
}

// An element may have the id that a repeated one would get.
func TestPlan_RepeatedIDsTaken(t *testing.T) {
	text := `[{"id":"a","n":1},{"id":"a~2","n":2},{"id":"a","n":3},{"id":"a","n":4},{"id":"a~2","n":5}]`
	e := estimateOf(t, -1, estimate.Room{}, estimate.File{Path: "r.json", Content: text})
	want := []string{"r.json#a", "r.json#a~2", "r.json#a~3", "r.json#a~4", "r.json#a~2~2"}
	if diff := cmp.Diff(want, ids(e)); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
}

// A skipped file leaves nothing, also if it was cut in part.
func TestPlan_SkippedFileLeavesNothing(t *testing.T) {
	wide := strings.Repeat("x", 100) + "," + strings.Repeat("y", 100) + "\n" + strings.Repeat("1,2\n", 200_000)
	good := estimate.File{Path: "a.txt", Content: "tea"}
	for _, shown := range []int{-1, 10} {
		e := estimateOf(t, shown, estimate.Room{}, estimate.File{Path: "w.csv", Content: wide}, good)
		if e.Points != 1 || e.Bytes != 3 || !strings.Contains(e.Files[0].Skipped, "16 times") {
			t.Errorf("%d data points of %d bytes, %+v", e.Points, e.Bytes, e.Files)
		}
		if diff := cmp.Diff([]string{"a.txt"}, ids(e)); diff != "" {
			t.Error(diff)
		}
	}
}

// The number of data points and the contents that are kept are bounded.
func TestPlan_Bounds(t *testing.T) {
	row := "x\n"
	e := estimateOf(t, 0, estimate.Room{},
		estimate.File{Path: "a.csv", Content: "n\n" + strings.Repeat(row, limit.EstimatePoints)},
		estimate.File{Path: "b.csv", Content: "n\n" + row},
	)
	if e.Points != limit.EstimatePoints || e.Files[0].Skipped != "" || !strings.Contains(e.Files[1].Skipped, "1000000 data points") {
		t.Errorf("%d data points, %+v", e.Points, e.Files)
	}
	p := estimate.NewPlan(time.UTC, -1)
	big := strings.Repeat("x", limit.ContentBytes)
	for i := range (limit.EstimateFull - 1) / limit.ContentBytes {
		runtest.Must(t, p.AddItem(estimate.Point{ID: fmt.Sprint(i), Content: big}))
	}
	if err := p.AddItem(estimate.Point{ID: "one more", Content: big}); !errors.Is(err, estimate.ErrContents) {
		t.Errorf("one more: %v", err)
	}
}

// Files of these contents are no text that can be cut, on both sides of each limit.
func TestCut_Skipped(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		want    string
	}{
		"empty":            {"", "is empty"},
		"white space":      {"\ufeff \r\n\t", "is empty"},
		"U+0000":           {"a\x00b", "U+0000"},
		"one byte too big": {strings.Repeat("x", limit.EstimateFileBytes+1), "want at most 16777216"},
		"as big as it may": {strings.Repeat("x", limit.EstimateFileBytes), ""},
		"not UTF-8":        {"caf\xe9 and tea", ""},
	} {
		got := skipReason(t, estimate.File{Path: "a.txt", Content: c.content})
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: skipped because it %q, want %q", name, got, c.want)
		}
	}
}

// anyText returns a text of up to so many characters of one to four bytes, some of which no id or label has.
func anyText(rng *rand.Rand, most int) string {
	var b strings.Builder
	for range rng.IntN(most + 1) {
		b.WriteString([]string{"a", "é", "ß", "\U0001F375", "a", "a", "a", "a", " ", "-", "\x00", "\n"}[rng.IntN(8+4*rng.IntN(2))])
	}
	return b.String()
}

// The ids and labels of a file are those that each of them has by itself.
func TestPaths_IDsAndLabels(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 3))
	for range 300 {
		path := anyText(rng, limit.EstimatePath)
		of, label := estimate.IDs(path), estimate.Labels()
		for range 10 {
			name := anyText(rng, []int{3, 40, 2000}[rng.IntN(3)])
			if got, want := of(name), estimate.FitID(path+name); got != want {
				t.Fatalf("%q and %q: %q, want %q", path, name, got, want)
			}
			if got, want := label(path, name), estimate.FitName(path+name, limit.Label); got != want {
				t.Fatalf("%q and %q: %q, want %q", path, name, got, want)
			}
		}
	}
}

// A hash of texts that begin alike depends on the text alone, whichever came before.
func TestPrefixed_Sum(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 4))
	begins := []string{"", "a", strings.Repeat("path/", 300), strings.Repeat("path/", 300) + strings.Repeat("b", 900), strings.Repeat("c", 700)}
	var p estimate.Prefixed
	for range 5000 {
		text := begins[rng.IntN(len(begins))] + anyText(rng, 20)
		if want := sha256.Sum256([]byte(text)); !bytes.Equal(p.Sum(text), want[:]) {
			t.Fatalf("another hash of %q", text)
		}
	}
}

// What the rows of a file have in common is hashed once: 50,000 rows under the longest path hashed it 150,000 times.
func TestPrefixed_HashesThePathOnce(t *testing.T) {
	var p estimate.Prefixed
	for _, path := range []string{strings.Repeat("a", 4000), strings.Repeat("b", 3000)} { // of two files
		for n := range 1000 {
			p.Sum(fmt.Sprintf("%s#%d", path, n))
			if n >= 2 && p.Known() < len(path) {
				t.Fatalf("row %d hashes %d bytes again", n, len(path)-p.Known())
			}
		}
	}
}
