package storage

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

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
