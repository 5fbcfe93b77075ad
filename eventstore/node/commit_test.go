package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// slowSync is a file system whose fsync gives way to the callers that wait, as one of a disk does.
type slowSync struct{ vfs.FS }

func (s *slowSync) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	return slowFile{f}, nil
}

type slowFile struct{ vfs.File }

func (f slowFile) SyncData() error {
	for range 2000 {
		runtime.Gosched()
	}
	return f.File.SyncData()
}

// What was acknowledged before a crash is there after it, what was read before it too, and each append is there whole
// or not at all. The crash is a copy of the files as a power cut could leave them, taken in the midst of appends.
func TestCrashLosesNothingAcknowledged(t *testing.T) {
	const writers, perAppend = 8, 3
	fs := vfs.NewCrashableMem()
	n := startNode(t, Config{Dir: "log", FS: fs})
	c := dial(t, n)
	var mu sync.Mutex
	acknowledged := map[string]int64{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			name := fmt.Sprintf("w%d", w)
			for i := int64(-1); ; i += perAppend {
				resp, err := c.tryAppend(ctx, name, at(i), newEvents(perAppend)...)
				if ctx.Err() != nil {
					return
				}
				if err != nil || resp.GetSuccess() == nil {
					t.Errorf("append: %v, %v", resp, err)
					return
				}
				mu.Lock()
				acknowledged[name] = i + perAppend
				mu.Unlock()
			}
		})
	}
	reads := c.subscribe(ofAll())
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 8 {
		seen := uint64(0)
		for range 200 {
			if resp := reads.next(); resp.GetEvent() != nil {
				seen = recordedOf(t, resp).position
			}
		}
		mu.Lock()
		want := map[string]int64{}
		for name, revision := range acknowledged {
			want[name] = revision
		}
		mu.Unlock()
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50}[round%2], RNG: rng})

		restarted := startNode(t, Config{Dir: "log", FS: crashed})
		rc := dial(t, restarted)
		for name, revision := range want {
			events := rc.read(ofStream(name))
			if int64(len(events)) <= revision {
				t.Errorf("round %d: %s has %d events, revision %d was acknowledged", round, name, len(events), revision)
			}
			if len(events)%perAppend != 0 {
				t.Errorf("round %d: %s has half an append: %d events", round, name, len(events))
			}
		}
		if head := lastPosition(rc); head < seen {
			t.Errorf("round %d: position %d was read, the log ends at %d", round, seen, head)
		}
		for name := range want { // the log goes on
			rc.append(name, existing, newEvents(1)...)
			break
		}
	}
	cancel()
	wg.Wait()
}

// Concurrent appends share fsyncs, and each is answered for itself.
func TestGroupCommit(t *testing.T) {
	const callers, each = 32, 40
	fs := &slowSync{FS: vfs.NewMem()}
	n := startNode(t, Config{Dir: "log", FS: fs})
	c := dial(t, n)
	var wg sync.WaitGroup
	var mu sync.Mutex
	positions := map[uint64]string{}
	won := 0
	for w := range callers {
		wg.Go(func() {
			for i := range each {
				name := fmt.Sprintf("w%d", w)
				resp, err := c.tryAppend(context.Background(), name, at(int64(i)-1), newEvents(1)...)
				if err != nil || resp.GetSuccess().GetCurrentRevision() != uint64(i) {
					t.Errorf("append %d to %s: %v, %v", i, name, resp, err)
					return
				}
				contested, err := c.tryAppend(context.Background(), fmt.Sprintf("contested-%d", i), none, newEvents(1)...)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				p := resp.GetSuccess().GetPosition().GetCommitPosition()
				if other, taken := positions[p]; taken {
					t.Errorf("position %d went to %s and %s", p, other, name)
				}
				positions[p] = name
				if contested.GetSuccess() != nil {
					won++
				} else if contested.GetWrongExpectedVersion().GetCurrentNoStream() != nil {
					t.Error("lost a race against nobody")
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if won != each {
		t.Errorf("%d of %d contested streams were created", won, each)
	}
	s := n.Stats()
	if s.Events != callers*each+each || s.Appends != s.Events {
		t.Errorf("stats: %+v", s)
	}
	if s.Fsyncs*2 > s.Appends {
		t.Errorf("%d fsyncs for %d appends", s.Fsyncs, s.Appends)
	}
	if got := len(c.read(ofAll())); got != int(s.Events) {
		t.Errorf("the log holds %d events, want %d", got, s.Events)
	}
}
