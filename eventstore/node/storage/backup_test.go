package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/internal/runtest"
)

// A backup made under load holds everything that was acknowledged before it began, at the same
// positions, and nothing that is not in the log. Its list names its last position. The restored log
// accepts appends.
func TestBackup_UnderLoad(t *testing.T) {
	n, c := openClient(t, Config{Dir: filepath.Join(t.TempDir(), "log"), FS: vfs.Default})
	for i := range 300 {
		c.append(fmt.Sprintf("s%d", i%7), anyRevision, newEvents(1+i%3)...)
		if i == 150 {
			runtest.Must(t, n.store.db.Flush())
		}
	}
	c.append("$$s1", none, metadataEvent(`{"$maxCount":3}`))
	c.delete("s2", anyRevision)
	c.tombstone("s3", anyRevision)
	runtest.Must(t, n.Scavenge(runtest.Context(t))) // what is taken away later would be missing in one of the two
	before := c.read(ofAll())

	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for w := range 4 {
		load.Go(func() {
			for i := int64(-1); ctx.Err() == nil; i++ {
				if resp, err := c.tryAppend(context.Background(), fmt.Sprintf("w%d", w), at(i), newEvents(1)...); err != nil ||
					!stored(resp) {
					t.Errorf("append: %v, %v", resp, err)
					return
				}
			}
		})
	}
	root := t.TempDir()
	backup := filepath.Join(root, "made", "here")
	err := n.Backup(runtest.Context(t), backup)
	cancel()
	load.Wait()
	runtest.Must(t, err)
	content, err := readBackup(vfs.Default, backup)
	runtest.Must(t, err)

	restored := filepath.Join(root, "restored", "log")
	runtest.Must(t, Restore(runtest.Context(t), vfs.Default, backup, restored))
	rc := clientOf(t, open(t, Config{Dir: restored, FS: vfs.Default}))
	got, all := rc.read(ofAll()), c.read(ofAll())
	if len(got) < len(before) {
		t.Fatalf("%d events were restored, %d were acknowledged", len(got), len(before))
	}
	if diff := cmp.Diff(all[:len(got)], got, cmp.AllowUnexported(recordedEvent{})); diff != "" {
		t.Error(diff)
	}
	if last(got).position != content.Position {
		t.Errorf("the backup names position %d, and ends at %d", content.Position, last(got).position)
	}
	if _, _, err := rc.tryRead(ofStream("s3")); err == nil {
		t.Error("a tombstoned stream is back")
	}
	rc.wantCount(ofStream("s1"), 3)
	if _, position := rc.append("s1", existing, newEvents(1)...); position != content.Position+1 {
		t.Errorf("the restored log goes on at %d", position)
	}
	// A second restore from the same backup finds it as it was.
	runtest.Must(t, Restore(runtest.Context(t), vfs.Default, backup, filepath.Join(root, "again")))
}

// A refused backup or restore is one line with the reason, and leaves no file.
// holedFS spoils what the first copy reads of a write-ahead log, as a write at that moment can. It
// reports for each copy whether writes could begin meanwhile.
type holedFS struct {
	vfs.FS
	armed   atomic.Bool
	reads   int // how many reads of the first copy are spoiled
	observe func() (writesCanBegin bool)
	seen    []bool
	// removed holds, for each copy that was removed, whether it could be read.
	removed []bool
}

func (fs *holedFS) RemoveAll(name string) error {
	_, err := headOf(fs.FS, name)
	fs.removed = append(fs.removed, err == nil)
	return fs.FS.RemoveAll(name)
}

func (fs *holedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.Open(name, opts...)
	if err != nil || !fs.armed.Load() || filepath.Ext(name) != ".log" || strings.HasPrefix(name, "/backup") {
		return f, err
	}
	fs.seen = append(fs.seen, fs.observe())
	if len(fs.seen) > 1 {
		return f, nil
	}
	return &holedFile{File: f, reads: fs.reads}, nil
}

type holedFile struct {
	vfs.File
	reads int
}

func (f *holedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if f.reads--; f.reads >= 0 && n > 1000 {
		clear(p[500:600])
	}
	return n, err
}

// A copy whose write-ahead log has a hole is replaced by one for which writes wait, whether the copy
// cannot be opened or opens without the events after the hole.
func TestBackup_CopyWithHole(t *testing.T) {
	for name, tt := range map[string]struct {
		reads    int
		readable bool
	}{"unreadable": {1, false}, "too short": {100, true}} {
		t.Run(name, func(t *testing.T) { backupWithHole(t, tt.reads, tt.readable) })
	}
}

func backupWithHole(t *testing.T, reads int, readable bool) {
	fs := &holedFS{FS: vfs.NewMem(), reads: reads}
	n, c := openClient(t, Config{Dir: "/log", FS: fs})
	for i := range 40 {
		c.append("s", at(int64(i)-1), newEvent(noise(3000)))
		if i == 0 { // the first log of a folder has an older format, in which a hole looks like the end
			runtest.Must(t, n.store.flush(runtest.Context(t)))
		}
	}
	fs.observe = func() bool {
		free := n.store.writes.TryRLock()
		if free {
			n.store.writes.RUnlock()
		}
		return free
	}
	fs.armed.Store(true)
	runtest.Must(t, n.Backup(runtest.Context(t), "/backup"))
	fs.armed.Store(false)
	if diff := cmp.Diff([]bool{true, false}, fs.seen); diff != "" {
		t.Errorf("whether writes can begin during each copy (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]bool{readable}, fs.removed); diff != "" {
		t.Errorf("whether the first copy could be read (-want +got):\n%s", diff)
	}
	runtest.Must(t, Restore(runtest.Context(t), fs, "/backup", "/restored"))
	if got := clientOf(t, open(t, Config{Dir: "/restored", FS: fs})).read(ofAll()); len(got) != 40 {
		t.Errorf("%d events were restored of 40", len(got))
	}
}

func TestBackup_Refused(t *testing.T) {
	n, c := openClient(t, Config{Dir: filepath.Join(t.TempDir(), "log"), FS: vfs.Default})
	c.append("s", none, newEvents(3)...)
	runtest.Must(t, n.store.db.Flush())
	c.append("s", at(2), newEvents(3)...)
	full := t.TempDir()
	runtest.Must(t, os.WriteFile(filepath.Join(full, "mine"), []byte("mine"), 0o600))
	file := filepath.Join(full, "mine")
	good := filepath.Join(t.TempDir(), "good")
	runtest.Must(t, n.Backup(runtest.Context(t), good))

	for _, target := range []string{full, good, file} {
		if err := n.Backup(runtest.Context(t), target); err == nil {
			t.Errorf("a backup went into %s", target)
		}
		if err := Restore(runtest.Context(t), vfs.Default, good, target); err == nil {
			t.Errorf("a restore went into %s", target)
		}
	}
	if kept, err := os.ReadFile(file); err != nil || string(kept) != "mine" {
		t.Errorf("%q, %v", kept, err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	gone := filepath.Join(t.TempDir(), "stopped")
	if err := n.Backup(stopped, gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a stopped backup: %v", err)
	}
	if err := Restore(stopped, vfs.Default, good, gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a stopped restore: %v", err)
	}
	nothingIn(t, gone)

	content, err := readBackup(vfs.Default, good)
	runtest.Must(t, err)
	var table string
	for _, f := range content.Files {
		if strings.HasSuffix(f.Name, ".sst") {
			table = f.Name
		}
	}
	tests := []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   string
	}{
		{"no list", func(t *testing.T, dir string) { runtest.Must(t, os.Remove(filepath.Join(dir, backupList))) }, "is no backup of a log"},
		{"cut list", func(t *testing.T, dir string) { runtest.Must(t, os.Truncate(filepath.Join(dir, backupList), 100)) }, "is damaged: its BACKUP.json cannot be read"},
		{"missing file", func(t *testing.T, dir string) { runtest.Must(t, os.Remove(filepath.Join(dir, backupFiles, table))) }, "its file " + table + " is missing"},
		{"cut file", func(t *testing.T, dir string) {
			runtest.Must(t, os.Truncate(filepath.Join(dir, backupFiles, table), 100))
		}, "its file " + table + " is not what was backed up"},
		{"changed file", func(t *testing.T, dir string) { flip(t, filepath.Join(dir, backupFiles, table), 40) }, "its file " + table + " is not what was backed up"},
		{"newer", func(t *testing.T, dir string) {
			path := filepath.Join(dir, backupList)
			text, err := os.ReadFile(path)
			runtest.Must(t, err)
			runtest.Must(t, os.WriteFile(path, []byte(strings.Replace(string(text), `"format": 1`, `"format": 2`, 1)), 0o600))
		}, "was made by a newer version"},
		{"a path", func(t *testing.T, dir string) {
			path := filepath.Join(dir, backupList)
			text, err := os.ReadFile(path)
			runtest.Must(t, err)
			runtest.Must(t, os.WriteFile(path, []byte(strings.Replace(string(text), table, "../../"+table, 1)), 0o600))
		}, "names the file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bad, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
			runtest.Must(t, os.CopyFS(bad, os.DirFS(good)))
			tt.damage(t, bad)
			err := Restore(runtest.Context(t), vfs.Default, bad, target)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
			nothingIn(t, target)
		})
	}
}

// A restore that a crash ended is not mistaken for a log.
func TestRestore_Unfinished(t *testing.T) {
	dir := t.TempDir()
	runtest.Must(t, writeFormat(vfs.Default, dir, unfinishedRestore))
	if n, err := Open(Config{Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), "holds a restore that did not finish") {
		t.Errorf("%v, %v", n, err)
	}
}

func nothingIn(t *testing.T, dir string) {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if len(names) != 0 {
		t.Errorf("left in the folder: %v", names)
	}
}

// flip changes one byte of a file.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	content, err := os.ReadFile(path)
	runtest.Must(t, err)
	content[at] ^= 0x55
	runtest.Must(t, os.WriteFile(path, content, 0o600))
}

// A backup of a log whose newest events were erased is whole.
func TestBackup_NewestErased(t *testing.T) {
	fs := vfs.NewMem()
	n, c := openClient(t, Config{Dir: "/log", FS: fs})
	c.append("kept", none, newEvents(1)...)
	c.append("gone", none, newEvents(3)...)
	c.tombstone("gone", anyRevision)
	runtest.Must(t, n.Scavenge(runtest.Context(t)))
	runtest.Must(t, n.Backup(runtest.Context(t), "/backup"))
	position, err := BackedUp(fs, "/backup")
	runtest.Must(t, err)
	if position != n.Head() {
		t.Errorf("the backup ends at %d, the log at %d", position, n.Head())
	}
}

// A panic while the log is copied fails the engine, and not the process.
func TestBackup_Panic(t *testing.T) {
	fs := &holedFS{FS: vfs.NewMem(), observe: func() bool { panic("no such disk") }}
	n := open(t, Config{Dir: "/log", FS: fs})
	clientOf(t, n).append("s", none, newEvents(1)...)
	fs.armed.Store(true)
	err := n.Backup(runtest.Context(t), "/backup")
	fs.armed.Store(false)
	if err == nil || n.Err() == nil || !strings.Contains(n.Err().Error(), "no such disk") {
		t.Errorf("the backup ended with %v, the engine with %v", err, n.Err())
	}
}
