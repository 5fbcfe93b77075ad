package storage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/eventstore/node/wire"
	"github.com/annals-project/annals/internal/runtest"
)

// The budget of a start on a log of 10 million events.
const (
	openTime   = 2 * time.Second
	openMemory = 300 << 20
)

// A log of ANNALS_TEST_OPEN events of 500 bytes opens in a new process within its budget, while
// what the last process held in memory is still in the write-ahead logs. ANNALS_TEST_OPEN_DIR keeps
// the folder for another run.
func TestOpen_Time(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("ANNALS_TEST_OPEN"))
	if err != nil {
		t.Skip("ANNALS_TEST_OPEN does not say how many events")
	}
	dir := os.Getenv("ANNALS_TEST_OPEN_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	if format, err := readFormat(vfs.Default, dir); os.IsNotExist(err) || err == nil && format == 0 {
		fillFolder(t, dir, count)
	}
	fillFolder(t, dir, leftInLog)
	size := int64(0)
	names, err := os.ReadDir(dir)
	runtest.Must(t, err)
	for _, name := range names {
		info, err := name.Info()
		runtest.Must(t, err)
		size += info.Size()
	}
	for run := range 3 {
		if run > 0 {
			fillFolder(t, dir, leftInLog)
		}
		took, memory, cpu := openElsewhere(t, dir)
		t.Logf("%d events, %d MiB in %d files: open in %s with at most %d MiB; opening and closing took %s of the processor",
			count, size>>20, len(names), took.Round(time.Millisecond), memory>>20, cpu.Round(time.Millisecond))
		if took > openTime || memory > openMemory {
			t.Errorf("run %d: the budget is %s and %d MiB", run, openTime, int64(openMemory)>>20)
		}
	}
}

// leftInLog is how many events fit what is held in memory: a start reads them from the write-ahead
// log.
const leftInLog = 9_000

// fillFolder writes so many events after those of a folder, as the writer does, but without its
// fsyncs: streams of five events.
func fillFolder(t *testing.T, dir string, count int) {
	t.Helper()
	const perStream, perCommit = 5, 1000
	st, err := openStore(Config{Dir: dir, FS: vfs.Default, Logger: runtest.Logger(t)})
	runtest.Must(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	filler := noise(1 << 20)
	created := wire.Ticks(time.Now())
	began := time.Now()
	head, err := st.head()
	runtest.Must(t, err)
	for end := head + uint64(count); head < end; {
		batch := st.db.NewBatch()
		for range perCommit / perStream {
			id := head + 1
			stream := "datapoint-" + uuid.NewString()
			for revision := range int64(perStream) {
				head++
				at := rng.IntN(len(filler) - 500)
				p := Propose(stream, uuid.New(), "datapoint.accepted.v1", true, []byte(filler[at:at+500]), nil)
				runtest.Must(t, batch.Set(eventKey(head), p.Record(revision, head, created), nil))
				runtest.Must(t, batch.Set(revisionKey(id, revision), encodePosition(head), nil))
			}
			runtest.Must(t, batch.Set(streamKey(stream), (&streamState{id: id, last: perStream - 1}).encode(), nil))
		}
		runtest.Must(t, batch.Commit(pebble.NoSync))
		runtest.Must(t, batch.Close())
	}
	// as a crash would: what is in memory stays in the write-ahead log
	runtest.Must(t, errors.Join(st.db.Close(), st.writeMark(head), st.lock.Close()))
	st.cache.Unref()
	t.Logf("filled in %s", time.Since(began).Round(time.Second))
}

// openElsewhere opens a folder in a new process, and returns how long that took from the start of
// the process and how much memory it needed.
func openElsewhere(t *testing.T, dir string) (took time.Duration, memory int64, cpu time.Duration) {
	t.Helper()
	other := exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), holdsFolder+"="+dir)
	in, err := other.StdinPipe()
	runtest.Must(t, err)
	out, err := other.StdoutPipe()
	runtest.Must(t, err)
	began := time.Now()
	runtest.Must(t, other.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	took = time.Since(began)
	if err != nil || line != "open\n" {
		t.Fatalf("%q, %v", line, err)
	}
	text, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(other.Process.Pid), "status"))
	runtest.Must(t, err)
	for _, l := range strings.Split(string(text), "\n") {
		if value, ok := strings.CutPrefix(l, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			runtest.Must(t, err)
			memory = kib << 10
		}
	}
	runtest.Must(t, in.Close())
	runtest.Must(t, other.Wait())
	return took, memory, other.ProcessState.UserTime() + other.ProcessState.SystemTime()
}

// holdsFolder names the folder that a copy of this test program is to keep open.
const holdsFolder = "NODE_TEST_HOLDS_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdsFolder); dir != "" {
		holdFolder(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// holdFolder keeps a node open until its standard input ends.
func holdFolder(dir string) {
	n, err := Open(Config{Dir: dir})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	buf := make([]byte, 1)
	for {
		if _, err := os.Stdin.Read(buf); err != nil {
			break
		}
	}
	if err := n.Close(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// A folder that is in use, by this process or another, is refused in one clear line. It can be
// opened once it is free.
func TestFolder_InUse(t *testing.T) {
	dir := t.TempDir()
	n, c := openClient(t, Config{Dir: dir, FS: vfs.Default})
	c.append("s", none, newEvents(1)...)
	want := "data folder " + dir + " is in use by another process"
	if second, err := Open(Config{Dir: dir}); err == nil || err.Error() != want {
		t.Fatalf("second start: %v, %v", second, err)
	}
	refused := exec.CommandContext(t.Context(), os.Args[0])
	refused.Env = append(os.Environ(), holdsFolder+"="+dir)
	out, err := refused.Output()
	if err == nil || strings.TrimSpace(string(out)) != heldBy(want, os.Getpid()) {
		t.Errorf("another process: %q, %v", out, err)
	}
	runtest.Must(t, n.Close())

	other, in, lines := holding(t, dir)
	if second, err := Open(Config{Dir: dir}); err == nil || err.Error() != heldBy(want, other.Process.Pid) {
		t.Errorf("while another process has it: %v, %v", second, err)
	}
	runtest.Must(t, in.Close())
	for lines.Scan() {
		t.Errorf("another process: %s", lines.Text())
	}
	runtest.Must(t, other.Wait())
	again := clientOf(t, open(t, Config{Dir: dir, FS: vfs.Default}))
	again.wantCount(ofAll(), 1)
}

// heldBy adds the process that has the folder open to the refusal.
func heldBy(refusal string, pid int) string {
	return fmt.Sprintf("%s (%s, pid %d)", refusal, filepath.Base(os.Args[0]), pid)
}

// holding starts a process that keeps a folder open until its standard input is closed.
func holding(t *testing.T, dir string) (other *exec.Cmd, in io.Closer, lines *bufio.Scanner) {
	t.Helper()
	other = exec.CommandContext(runtest.Context(t), os.Args[0])
	other.Env = append(os.Environ(), holdsFolder+"="+dir)
	in, err := other.StdinPipe()
	runtest.Must(t, err)
	stdout, err := other.StdoutPipe()
	runtest.Must(t, err)
	runtest.Must(t, other.Start())
	lines = bufio.NewScanner(stdout)
	if !lines.Scan() || lines.Text() != "open" {
		t.Fatalf("another process: %q, %v", lines.Text(), lines.Err())
	}
	return other, in, lines
}

// A process whose folder was removed while it ran cannot write its memory to it any more. It ends nevertheless.
func TestClose_FolderRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	other, in, _ := holding(t, dir)
	runtest.Must(t, os.RemoveAll(dir))
	runtest.Must(t, in.Close())
	var exit *exec.ExitError
	if err := other.Wait(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() < 0) {
		t.Errorf("the process did not end by itself: %v", err)
	}
}

// A folder that cannot be created is not reported as in use.
func TestOpen_FolderIsFile(t *testing.T) {
	file := t.TempDir() + "/file"
	runtest.Must(t, os.WriteFile(file, nil, 0o600))
	if _, err := Open(Config{Dir: file}); err == nil || strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v", err)
	}
}

// Positions continue after a restart, even if the newest events belonged to a deleted stream.
func TestPositions_AfterRestart(t *testing.T) {
	cfg := memoryConfig()
	head := uint64(0)
	for i := range 4 {
		n, c := openClient(t, cfg)
		name := fmt.Sprintf("s%d", i)
		_, position := c.append(name, none, newEvents(3)...)
		if position <= head {
			t.Fatalf("position %d after %d", position, head)
		}
		if i%2 == 1 {
			position = c.tombstone(name, anyRevision)
			scavenge(t, n)
		}
		head = position
		runtest.Must(t, n.Close())
	}
}

// usedFolder is a data folder with tables and with events that are only in the write-ahead log. It
// returns how many there are.
func usedFolder(t *testing.T) (dir string, events int) {
	t.Helper()
	dir = t.TempDir()
	n, c := openClient(t, Config{Dir: dir, FS: vfs.Default})
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
	c := clientOf(t, open(t, Config{Dir: dir, FS: vfs.Default, Logger: slog.New(slog.DiscardHandler)}))
	if _, _, err := c.tryRead(ofAll()); err == nil {
		t.Error("a changed table was read")
	}
	c.append("new", none, newEvents(1)...)
	c.wantCount(ofStream("new"), 1)
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
	n, c := openClient(t, cfg)
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
	clientOf(t, n).wantCount(ofAll(), 3)
}
