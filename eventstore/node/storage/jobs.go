package storage

import (
	"context"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// jobs tracks the flushes and compactions of the engine. A compaction keeps what an open snapshot
// sees, so a scavenge waits for those that began before its own snapshots ended.
type jobs struct {
	mu      sync.Mutex
	running map[int]struct{}
	changed chan struct{} // closed and replaced whenever a job ends or a file is deleted
}

func newJobs() *jobs { return &jobs{running: map[int]struct{}{}, changed: make(chan struct{})} }

func (j *jobs) began(id int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running[id] = struct{}{}
}

func (j *jobs) ended(id int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.running, id)
	j.notify()
}

func (j *jobs) notify() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// next returns a channel that is closed when the next job ends or the next file is deleted.
func (j *jobs) next() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.changed
}

// awaitRunning waits until the jobs that are running now have ended.
func (j *jobs) awaitRunning(ctx context.Context) error {
	j.mu.Lock()
	waiting := map[int]struct{}{}
	for id := range j.running {
		waiting[id] = struct{}{}
	}
	j.mu.Unlock()
	for {
		j.mu.Lock()
		for id := range waiting {
			if _, on := j.running[id]; !on {
				delete(waiting, id)
			}
		}
		changed := j.changed
		j.mu.Unlock()
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// listener returns the callbacks of the engine.
func (j *jobs) listener(log *slog.Logger) *pebble.EventListener {
	return &pebble.EventListener{
		// Reads of the file fail; the rest of the log is intact.
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			log.Error("a file of the log is damaged", "path", i.Path, "err", i.Details)
		},
		CompactionBegin: func(i pebble.CompactionInfo) { j.began(i.JobID) },
		CompactionEnd:   func(i pebble.CompactionInfo) { j.ended(i.JobID) },
		FlushBegin:      func(i pebble.FlushInfo) { j.began(i.JobID) },
		FlushEnd:        func(i pebble.FlushInfo) { j.ended(i.JobID) },
		TableDeleted: func(pebble.TableDeleteInfo) {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.notify()
		},
	}
}
