package bleve_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// elsewhere is a project of another slot.
func elsewhere(project uuid.UUID) uuid.UUID {
	for {
		if other := uuid.New(); bleve.SharedSlot(other) != bleve.SharedSlot(project) {
			return other
		}
	}
}

func ask(t *testing.T, x recallindex.Index, project uuid.UUID) (int, error) {
	t.Helper()
	found, err := x.Search(t.Context(), recallindex.Query{
		Analysis: indextest.Analysis,
		Project:  project, Sources: 10, Memories: 10, Terms: recall.Wholes("helix"), Audiences: []uuid.UUID{uuid.Nil},
	})
	return len(found.Sources.Hits), err
}

// Files that are missing, truncated or overwritten while the index is closed cost the slot, and no
// more.
func TestDamage_FoundAtTheStart(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, slot string){
		"slot gone":     func(t *testing.T, slot string) { runtest.Must(t, os.RemoveAll(slot)) },
		"snapshot gone": func(t *testing.T, slot string) { runtest.Must(t, os.Remove(filepath.Join(slot, "store", "root.bolt"))) },
		"snapshot cut": func(t *testing.T, slot string) {
			runtest.Must(t, os.Truncate(filepath.Join(slot, "store", "root.bolt"), 100))
		},
		"snapshot emptied": func(t *testing.T, slot string) {
			runtest.Must(t, os.Truncate(filepath.Join(slot, "store", "root.bolt"), 0))
		},
		"first segment gone":    func(t *testing.T, slot string) { runtest.Must(t, os.Remove(segments(t, slot)[0])) },
		"first segment emptied": func(t *testing.T, slot string) { runtest.Must(t, os.Truncate(segments(t, slot)[0], 0)) },
		"last segment gone":     func(t *testing.T, slot string) { runtest.Must(t, os.Remove(last(t, slot))) },
		"last segment emptied":  func(t *testing.T, slot string) { runtest.Must(t, os.Truncate(last(t, slot), 0)) },
		"last segment cut":      func(t *testing.T, slot string) { runtest.Must(t, os.Truncate(last(t, slot), 30)) },
		"no segment left": func(t *testing.T, slot string) {
			for _, path := range segments(t, slot) {
				runtest.Must(t, os.Remove(path))
			}
		},
		"moves damaged": func(t *testing.T, slot string) {
			data, err := os.ReadFile(slot + ".moves")
			runtest.Must(t, err)
			data[20] ^= 1
			runtest.Must(t, os.WriteFile(slot+".moves", append(data, data...), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder, project := filepath.Join(t.TempDir(), "bleve"), uuid.New()
			other := elsewhere(project)
			x := open(t, folder, bleve.Options{})
			write(t, x, project)
			write(t, x, other)
			point := uuid.New()
			runtest.Must(t, x.Apply(t.Context(), []recallindex.Change{{
				Analysis: indextest.Analysis,
				Project:  project, Moves: []recallindex.Move{{DataPoint: point, Audience: uuid.New()}},
				Upserts: []recallindex.Document{{
					Key:   recallindex.Key{DataPoint: point, Revision: 1},
					Terms: recall.Terms{Text: []string{"helix"}},
				}},
			}}))
			generation := x.Generation()
			runtest.Must(t, x.Close())
			damage(t, slotFolder(t, folder, bleve.SharedSlot(project)))
			x = open(t, folder, bleve.Options{})
			defer func() { runtest.Must(t, x.Close()) }()
			if x.Generation() != generation {
				t.Error("the generation is another one")
			}
			wantLost(t, x, project)
			if n, err := ask(t, x, other); n != 1 || err != nil {
				t.Errorf("another slot: %d hits, %v", n, err)
			}
			write(t, x, project)
			write(t, x, other)
		})
	}
}

func wantLost(t *testing.T, x recallindex.Index, project uuid.UUID) {
	t.Helper()
	if losses := x.Losses(); len(losses) != 1 || losses[0].Part != bleve.SharedSlot(project) {
		t.Fatalf("losses %+v", losses)
	}
	if _, err := ask(t, x, project); !errors.Is(err, recallindex.ErrIncomplete) {
		t.Errorf("a search in the lost slot: %v", err)
	}
}

// last is the newest segment of a slot.
func last(t *testing.T, slot string) string {
	t.Helper()
	all := segments(t, slot)
	return all[len(all)-1]
}

// segments are the files of the segments in use, of a closed slot: files of merged segments may
// still exist.
func segments(t *testing.T, slot string) []string {
	t.Helper()
	files, _, err := bleve.Newest(filepath.Join(slot, "store"))
	runtest.Must(t, err)
	if len(files) == 0 {
		t.Fatal("the slot has no segment")
	}
	for i, name := range files {
		files[i] = filepath.Join(slot, "store", name)
	}
	return files
}

// overwrite damages the segments of a slot while the index reads them.
func overwrite(t *testing.T, slot string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(slot, "store", "*.zap"))
	runtest.Must(t, err)
	for _, path := range files {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		runtest.Must(t, err)
		info, err := f.Stat()
		runtest.Must(t, err)
		garbage := make([]byte, info.Size()-40)
		for i := range garbage {
			garbage[i] = 0xff
		}
		_, err = f.WriteAt(garbage, 0)
		runtest.Must(t, err)
		runtest.Must(t, f.Close())
	}
}

// A slot whose files are overwritten while it is open is found damaged by its next use.
func TestDamage_FoundByUse(t *testing.T) {
	for name, use := range map[string]func(x recallindex.Index, project uuid.UUID) error{
		"search": func(x recallindex.Index, project uuid.UUID) error {
			_, err := ask(t, x, project)
			if errors.Is(err, recallindex.ErrIncomplete) {
				return nil
			}
			return errors.Join(errors.New("a search in a damaged slot"), err)
		},
		"delete": func(x recallindex.Index, project uuid.UUID) error {
			return x.Apply(t.Context(),
				[]recallindex.Change{{
					Analysis: indextest.Analysis,
					Project:  project,
					Deletes:  []recallindex.Scope{{DataPoint: uuid.New(), Part: recallindex.Sources, Revision: 1}},
				}})
		},
		"move": func(x recallindex.Index, project uuid.UUID) error {
			return x.Apply(t.Context(),
				[]recallindex.Change{{Project: project, Moves: []recallindex.Move{{DataPoint: uuid.New()}}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder, project := filepath.Join(t.TempDir(), "bleve"), uuid.New()
			other := elsewhere(project)
			x := open(t, folder, bleve.Options{})
			write(t, x, project)
			write(t, x, other)
			runtest.Must(t, x.Close())
			x = open(t, folder, bleve.Options{})
			defer func() { runtest.Must(t, x.Close()) }()
			overwrite(t, slotFolder(t, folder, bleve.SharedSlot(project)))
			runtest.Must(t, use(x, project))
			wantLost(t, x, project)
			if n, err := ask(t, x, other); n != 1 || err != nil {
				t.Errorf("another slot: %d hits, %v", n, err)
			}
			write(t, x, project)
			runtest.Must(t, x.Refilled(t.Context(), x.Losses()[0], nil))
			if n, err := ask(t, x, project); n != 1 || err != nil {
				t.Errorf("the slot that is whole again: %d hits, %v", n, err)
			}
		})
	}
}

// A search that fails loses nothing if the files are intact.
func TestDamage_IntactFilesAreKept(t *testing.T) {
	folder, project := filepath.Join(t.TempDir(), "bleve"), uuid.New()
	x := open(t, folder, bleve.Options{})
	write(t, x, project)
	runtest.Must(t, x.Close())
	x = open(t, folder, bleve.Options{})
	defer func() { runtest.Must(t, x.Close()) }()
	for _, fail := range []func() error{
		func() error { return errors.New("no reason") },
		func() error { panic("no reason") },
	} {
		if err := x.UseShared(project, fail); err == nil || errors.Is(err, recallindex.ErrIncomplete) {
			t.Errorf("the call ends with %v", err)
		}
	}
	if n, err := ask(t, x, project); n != 1 || err != nil || len(x.Losses()) != 0 {
		t.Errorf("%d hits, %v, losses %v", n, err, x.Losses())
	}
}

// If a goroutine of Bleve fails or ends, no call and no document is lost if the files are intact,
// and the slot is lost if they are not.
func TestDamage_FoundByBleve(t *testing.T) {
	for _, stops := range []bool{false, true} {
		folder, project := filepath.Join(t.TempDir(), "bleve"), uuid.New()
		x := open(t, folder, bleve.Options{})
		write(t, x, project)
		bleve.StopShared(x, project, stops)
		if n, err := ask(t, x, project); n != 1 || err != nil {
			t.Errorf("%d hits, %v", n, err)
		}
		bleve.StopShared(x, project, stops)
		write(t, x, project)
		if n, err := ask(t, x, project); n != 2 || err != nil || len(x.Losses()) != 0 {
			t.Errorf("%d hits, %v, losses %v", n, err, x.Losses())
		}
		runtest.Must(t, x.Close())
		// One segment is not merged with any other, so what is overwritten is in use.
		folder = filepath.Join(t.TempDir(), "damaged")
		x = open(t, folder, bleve.Options{})
		write(t, x, project)
		overwrite(t, slotFolder(t, folder, bleve.SharedSlot(project)))
		bleve.StopShared(x, project, stops)
		write(t, x, project)
		wantLost(t, x, project)
		runtest.Must(t, x.Close())
	}
}

// A slot that was being dropped when the process ended is dropped by the next one.
func TestDamage_CrashWhileDropping(t *testing.T) {
	folder, project := filepath.Join(t.TempDir(), "bleve"), uuid.New()
	x := open(t, folder, bleve.Options{})
	write(t, x, project)
	runtest.Must(t, x.Close())
	slot := slotFolder(t, folder, bleve.SharedSlot(project))
	runtest.Must(t, os.WriteFile(slot+".lost", []byte(`{"id":"`+uuid.NewString()+`","removed":false}`), 0o600))
	x = open(t, folder, bleve.Options{})
	defer func() { runtest.Must(t, x.Close()) }()
	wantLost(t, x, project)
	if n, err := x.Count(t.Context(), project); n != 0 || err != nil {
		t.Errorf("%d documents are left, %v", n, err)
	}
}

// A damaged shadow is not refilled: its builder gets an error.
func TestDamage_Shadow(t *testing.T) {
	folder, project := filepath.Join(t.TempDir(), "bleve"), uuid.New()
	x := open(t, folder, bleve.Options{})
	defer func() { runtest.Must(t, x.Close()) }()
	write(t, x, project)
	next, err := x.NewShadow(t.Context())
	runtest.Must(t, err)
	write(t, next, project)
	generation, err := os.ReadFile(filepath.Join(folder, "NEXT"))
	runtest.Must(t, err)
	overwrite(t, filepath.Join(folder, string(generation[:len(generation)-1]), bleve.SharedSlot(project)))
	change := []recallindex.Change{{
		Analysis: indextest.Analysis,
		Project:  project,
		Deletes:  []recallindex.Scope{{DataPoint: uuid.New(), Part: recallindex.Sources, Revision: 1}},
	}}
	for range 2 {
		if err := next.Apply(t.Context(), change); !errors.Is(err, recallindex.ErrDamaged) {
			t.Errorf("a change of damaged contents: %v", err)
		}
	}
	if n, err := ask(t, x, project); n != 1 || err != nil || len(x.Losses()) != 0 {
		t.Errorf("the contents in use: %d hits, %v, losses %v", n, err, x.Losses())
	}
	runtest.Must(t, x.Discard(t.Context()))
}
