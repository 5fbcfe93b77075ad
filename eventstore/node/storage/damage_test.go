package storage

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/annals-project/annals/internal/runtest"
)

// usedFolder is a data folder with tables and with events that are only in the write-ahead log. It
// returns how many there are.
func usedFolder(t *testing.T) (dir string, events int) {
	t.Helper()
	dir = t.TempDir()
	n := open(t, Config{Dir: dir, FS: vfs.Default})
	c := clientOf(t, n)
	for i := range 40 {
		c.append("s", at(int64(i)-1), newEvent(noise(1000)))
	}
	runtest.Must(t, n.store.db.Flush())
	for i := range 40 {
		c.append("s", at(int64(i)+39), newEvent(noise(1000)))
	}
	n.store.skipFlush = true
	runtest.Must(t, n.Close())
	return dir, 80
}

// newest is the last file of a folder, by name, that ends or begins so.
func newest(t *testing.T, dir, prefix, suffix string) string {
	t.Helper()
	names, err := os.ReadDir(dir)
	runtest.Must(t, err)
	for _, name := range slices.Backward(names) {
		if info, err := name.Info(); err == nil && info.Size() > 0 && strings.HasPrefix(name.Name(), prefix) &&
			strings.HasSuffix(name.Name(), suffix) {
			return filepath.Join(dir, name.Name())
		}
	}
	t.Fatalf("no file %s*%s in %v", prefix, suffix, names)
	return ""
}

func overwrite(t *testing.T, path string, at int64, with []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	runtest.Must(t, err)
	_, err = f.WriteAt(with, at)
	runtest.Must(t, errors.Join(err, f.Close()))
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	runtest.Must(t, err)
	return info.Size()
}

// A folder that cannot be opened is one line: what is wrong and what to do.
func TestOpen_DamagedFolders(t *testing.T) {
	const damage = "is damaged: "
	const advice = "restore a backup into a new folder"
	garbage := []byte(noise(600))
	tests := []struct {
		name string
		do   func(t *testing.T, dir string)
		want []string
	}{
		{"cut manifest", func(t *testing.T, dir string) { runtest.Must(t, os.Truncate(newest(t, dir, "MANIFEST-", ""), 60)) }, []string{damage, advice}},
		{"manifest cut a little", func(t *testing.T, dir string) {
			manifest := newest(t, dir, "MANIFEST-", "")
			runtest.Must(t, os.Truncate(manifest, sizeOf(t, manifest)-1))
		}, []string{damage, advice}},
		{"older tables and logs", func(t *testing.T, dir string) {
			log := newest(t, dir, "", ".log")
			runtest.Must(t, os.Truncate(log, sizeOf(t, log)/2))
		}, []string{damage, "had come to", advice}},
		{"mark that says nothing", func(t *testing.T, dir string) {
			runtest.Must(t, os.WriteFile(filepath.Join(dir, markFile), garbage[:8], 0o600))
		}, []string{damage, "MARK", advice}},
		{"empty manifest", func(t *testing.T, dir string) { runtest.Must(t, os.Truncate(newest(t, dir, "MANIFEST-", ""), 0)) }, []string{damage, advice}},
		{"garbled manifest", func(t *testing.T, dir string) { overwrite(t, newest(t, dir, "MANIFEST-", ""), 10, garbage[:100]) }, []string{damage, advice}},
		{"no manifest", func(t *testing.T, dir string) { runtest.Must(t, os.Remove(newest(t, dir, "MANIFEST-", ""))) }, []string{damage, advice}},
		{"no marker", func(t *testing.T, dir string) {
			markers, err := filepath.Glob(filepath.Join(dir, "marker.manifest.*"))
			runtest.Must(t, err)
			for _, m := range markers {
				runtest.Must(t, os.Remove(m))
			}
		}, []string{damage, "marker of its manifest", advice}},
		{"no marker, old", func(t *testing.T, dir string) {
			markers, err := filepath.Glob(filepath.Join(dir, "marker.manifest.*"))
			runtest.Must(t, err)
			for _, m := range append(markers, filepath.Join(dir, formatFile)) {
				runtest.Must(t, os.Remove(m))
			}
		}, []string{damage, "marker of its manifest", advice}},
		{"no table", func(t *testing.T, dir string) { runtest.Must(t, os.Remove(newest(t, dir, "", ".sst"))) }, []string{damage, "file does not exist", advice}},
		{"cut table", func(t *testing.T, dir string) { runtest.Must(t, os.Truncate(newest(t, dir, "", ".sst"), 100)) }, []string{damage, advice}},
		{"garbage in the midst of the log", func(t *testing.T, dir string) { overwrite(t, newest(t, dir, "", ".log"), 8000, garbage) }, []string{damage, advice}},
		{"newer format", func(t *testing.T, dir string) { runtest.Must(t, writeFormat(vfs.Default, dir, "3")) }, []string{"was written by a newer version", "format 3", "run that version"}},
		{"format that says nothing", func(t *testing.T, dir string) {
			runtest.Must(t, os.WriteFile(filepath.Join(dir, formatFile), garbage[:8], 0o600))
		}, []string{damage, "FORMAT", advice}},
		{"newer engine", func(t *testing.T, dir string) {
			marker, err := filepath.Glob(filepath.Join(dir, "marker.format-version.*"))
			runtest.Must(t, err)
			slices.Sort(marker)
			last := marker[len(marker)-1]
			runtest.Must(t, os.Rename(last, last[:strings.LastIndex(last, ".")+1]+"999"))
		}, []string{"was written by a newer version", "run that version"}},
	}
	whole, _ := usedFolder(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := copyFolder(t, whole)
			tt.do(t, dir)
			for range 2 { // also when it is tried again
				n, err := Open(Config{Dir: dir})
				if err == nil {
					runtest.Must(t, n.Close())
					t.Fatal("it was opened")
				}
				if !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "\n") {
					t.Errorf("said: %v", err)
				}
				for _, w := range tt.want {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("said: %v, want %q", err, w)
					}
				}
			}
		})
	}
}

// An incomplete write at the end of the log, after a crash, is not damage: the log ends before it.
func TestOpen_TornEndOfLog(t *testing.T) {
	whole, events := usedFolder(t)
	// A crash comes before it is noted that the last event is there.
	runtest.Must(t, os.Remove(filepath.Join(whole, markFile)))
	tests := []struct {
		name string
		do   func(t *testing.T, log string)
		lost int
	}{
		{"cut", func(t *testing.T, log string) { runtest.Must(t, os.Truncate(log, sizeOf(t, log)-3)) }, 1},
		{"zeros behind it", func(t *testing.T, log string) { runtest.Must(t, os.Truncate(log, sizeOf(t, log)+5000)) }, 0},
		{"garbage behind it", func(t *testing.T, log string) { overwrite(t, log, sizeOf(t, log), []byte(noise(300))) }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := copyFolder(t, whole)
			tt.do(t, newest(t, dir, "", ".log"))
			got := clientOf(t, open(t, Config{Dir: dir, FS: vfs.Default})).read(ofAll())
			if len(got) < events-tt.lost {
				t.Errorf("%d of %d events are there", len(got), events)
			}
		})
	}
}

// A changed table fails the reads that need it, with a clear error; the others go on.
func TestDamage_ChangedTable(t *testing.T) {
	dir, _ := usedFolder(t)
	overwrite(t, newest(t, dir, "", ".sst"), 500, []byte(noise(2000)))
	n := open(t, Config{Dir: dir, FS: vfs.Default, Logger: slog.New(slog.DiscardHandler)})
	c := clientOf(t, n)
	if _, _, err := c.tryRead(ofAll()); err == nil {
		t.Error("a changed table was read")
	}
	c.append("new", none, newEvents(1)...)
	if got := c.read(ofStream("new")); len(got) != 1 {
		t.Errorf("%d events", len(got))
	}
}

// brokenFS refuses to make folders or files.
type brokenFS struct {
	vfs.FS
	err error
}

func (b brokenFS) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, b.err }
func (b brokenFS) Lock(name string) (io.Closer, error) {
	if errors.Is(b.err, syscall.ENOSPC) { // the lock needs no space
		return b.FS.Lock(name)
	}
	return nil, b.err
}

// A path that is not a folder, cannot be written or has no space is refused with that reason.
func TestOpen_UnwritableFolders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	runtest.Must(t, os.WriteFile(file, nil, 0o600))
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"a file", Config{Dir: file}, "is not a folder"},
		{"below a file", Config{Dir: filepath.Join(file, "log")}, "is not a folder"},
		{"not allowed", Config{Dir: "log", FS: brokenFS{vfs.NewMem(), &os.PathError{Op: "open", Path: "LOCK", Err: syscall.EACCES}}}, "cannot be written by this user"},
		{"read-only", Config{Dir: "log", FS: brokenFS{vfs.NewMem(), &os.PathError{Op: "open", Path: "LOCK", Err: syscall.EROFS}}}, "cannot be written by this user"},
		{"full", Config{Dir: "log", FS: brokenFS{vfs.NewMem(), &os.PathError{Op: "open", Path: "000001.log", Err: syscall.ENOSPC}}}, "is full: make space"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, err := Open(tt.cfg)
			if err == nil {
				runtest.Must(t, n.Close())
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.cfg.Dir) {
				t.Errorf("said: %v", err)
			}
		})
	}
}

// A log without a format file is opened and converted to the newest format. The bounds of its
// streams are known afterwards.
func TestOpen_OldFormat(t *testing.T) {
	cfg := memoryConfig()
	n := open(t, cfg)
	c := clientOf(t, n)
	c.append("s", none, newEvents(5)...)
	c.append("$$s", none, metadataEvent(`{"$maxCount":2}`))
	runtest.Must(t, n.store.db.Delete(boundedKey("s"), nil)) // as an older version left it
	runtest.Must(t, n.Close())
	dir, err := filepath.Abs(cfg.Dir)
	runtest.Must(t, err)
	runtest.Must(t, cfg.FS.Remove(cfg.FS.PathJoin(dir, formatFile)))
	n = open(t, cfg)
	if format, err := readFormat(cfg.FS, dir); format != newestFormat || err != nil {
		t.Errorf("format %d, %v", format, err)
	}
	runtest.Must(t, n.Scavenge(runtest.Context(t)))
	if got := clientOf(t, n).read(ofAll()); len(got) != 3 {
		t.Errorf("the whole log shows %d events", len(got))
	}
}
