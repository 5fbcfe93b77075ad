package bleve

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

func holding(project uuid.UUID, term string) recallindex.Change {
	return recallindex.Change{Analysis: indextest.Analysis, Project: project, Upserts: []recallindex.Document{{
		Key:   recallindex.Key{DataPoint: uuid.NewSHA1(project, []byte(term)), Revision: 1},
		Terms: recall.Terms{Text: []string{term}},
	}}}
}

func apply(t *testing.T, x recallindex.Index, project uuid.UUID, terms ...string) {
	t.Helper()
	for _, term := range terms {
		if err := x.Apply(t.Context(), []recallindex.Change{holding(project, term)}); err != nil {
			t.Fatal(err)
		}
	}
}

func wantCount(t *testing.T, x recallindex.Index, project uuid.UUID, want int) {
	t.Helper()
	if n, err := x.Count(t.Context(), project); err != nil || n != want {
		t.Errorf("%d documents, %v; want %d", n, err, want)
	}
}

// generations returns the folders of generations that exist.
func generations(t *testing.T, folder string) (n int) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			n++
		}
	}
	return n
}

func open(t *testing.T, folder string) *Index {
	t.Helper()
	x, err := Open(folder, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func TestShadow_Promote(t *testing.T) {
	folder, project := filepath.Join(t.TempDir(), "index"), uuid.New()
	x := open(t, folder)
	apply(t, x, project, "one", "two")
	before := x.Generation()
	next, err := x.NewShadow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	apply(t, next, project, "one", "two", "three")
	wantCount(t, x, project, 2)
	if ok, err := x.Promote(t.Context(), before); ok || err != nil {
		t.Errorf("the contents in use were promoted: %t, %v", ok, err)
	}
	// Readers run all the time.
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if n, err := x.Count(t.Context(), project); err != nil || n != 2 && n != 3 {
					t.Errorf("%d documents, %v", n, err)
					return
				}
			}
		})
	}
	ok, err := x.Promote(t.Context(), next.Generation())
	if !ok || err != nil {
		t.Errorf("not promoted: %v", err)
	}
	close(stop)
	readers.Wait()
	wantCount(t, x, project, 3)
	if x.Generation() == before || x.Generation() != next.Generation() {
		t.Errorf("generation %s", x.Generation())
	}
	apply(t, x, project, "four")
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, folder)
	wantCount(t, again, project, 4)
	if n := generations(t, folder); n != 1 {
		t.Errorf("%d generations are left", n)
	}
}

// A process ends between the switch-over of the rows and that of the index, or before both.
func TestShadow_CrashAroundPromote(t *testing.T) {
	for name, promoted := range map[string]bool{"after the switch of the rows": true, "before it": false} {
		t.Run(name, func(t *testing.T) {
			folder, project := filepath.Join(t.TempDir(), "index"), uuid.New()
			x := open(t, folder)
			apply(t, x, project, "one")
			next, err := x.NewShadow(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			apply(t, next, project, "one", "two")
			target := next.Generation()
			for _, end := range []recallindex.Index{next, x} {
				if err := end.Close(); err != nil {
					t.Fatal(err)
				}
			}
			again := open(t, folder)
			wantCount(t, again, project, 1)
			want := 1
			if promoted {
				want = 2
				if ok, err := again.Promote(t.Context(), target); !ok || err != nil {
					t.Fatalf("not promoted: %t, %v", ok, err)
				}
			} else if err := again.Discard(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantCount(t, again, project, want)
			if n := generations(t, folder); n != 1 {
				t.Errorf("%d generations are left", n)
			}
		})
	}
}

func TestShadow_TwiceAndDiscarded(t *testing.T) {
	folder, project := filepath.Join(t.TempDir(), "index"), uuid.New()
	x := open(t, folder)
	apply(t, x, project, "one")
	for range 2 {
		next, err := x.NewShadow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		apply(t, next, project, "two", "three")
	}
	if n := generations(t, folder); n != 2 {
		t.Errorf("%d generations while one is built", n)
	}
	for range 2 {
		if err := x.Discard(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := generations(t, folder); n != 1 {
		t.Errorf("%d generations are left", n)
	}
	wantCount(t, x, project, 1)
}

// The end of a rebuild and the next lease promote one generation at the same time.
func TestShadow_PromoteAtOnce(t *testing.T) {
	x, project := open(t, filepath.Join(t.TempDir(), "index")), uuid.New()
	for range 20 {
		next, err := x.NewShadow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		apply(t, next, project, "one")
		target := next.Generation()
		var both sync.WaitGroup
		begin := make(chan struct{})
		for range 8 { // more than two, to meet between the read of the name and the switch
			both.Go(func() {
				<-begin
				if _, err := x.Promote(t.Context(), target); err != nil {
					t.Errorf("promote: %v", err)
				}
			})
		}
		close(begin)
		both.Wait()
		if x.Generation() != target {
			t.Fatalf("generation %s, want %s", x.Generation(), target)
		}
		wantCount(t, x, project, 1)
	}
}
