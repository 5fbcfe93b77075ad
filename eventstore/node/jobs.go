package node

import (
	"context"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// jobs follows the work that the storage engine does by itself. A compaction keeps what a snapshot sees that was open when it
// began: a scavenge waits until those that began too early are over.
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

// next is closed when the next job ends or the next file is deleted.
func (j *jobs) next() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.changed
}

// settle waits until the jobs that run now are over.
func (j *jobs) settle(ctx context.Context) error {
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

// listener is how the engine tells of its work.
func (j *jobs) listener(log *slog.Logger) *pebble.EventListener {
	return &pebble.EventListener{
		// What is read of the file fails; the rest of the log is good.
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
