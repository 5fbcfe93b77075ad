package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/annals-project/annals/internal/bench/load"
)

// watchEvery is the pause between two observations during a load, watchProjects the most projects
// that are observed.
const (
	watchEvery    = 2 * time.Second
	watchProjects = 10
)

// oldestMetrics are the metrics for the age of the oldest open items, in seconds.
var oldestMetrics = []string{`annals_open_age_seconds{for="derivation"}`, `annals_open_age_seconds{for="index"}`}

// watching observes a server during a load.
type watching struct {
	cancel          context.CancelFunc
	done            chan struct{}
	err             error
	queue, resident []float64
	oldest          float64
}

// watch starts observing.
func (m *sustained) watch(ctx context.Context, list []target) *watching {
	ctx, cancel := context.WithCancel(ctx)
	w := &watching{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for began := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := m.observe(ctx, list, w); err != nil {
				if ctx.Err() == nil {
					w.err = fmt.Errorf("observe the server: %w", err)
				}
				return
			}
			last := len(w.queue) - 1
			_, _ = fmt.Fprintf(m.Progress, "after %.0f s: %.0f in progress, %.0f MiB, oldest %.1f s\n",
				time.Since(began).Seconds(), w.queue[last], w.resident[last], w.oldest)
		}
	}()
	return w
}

// stop ends the observation.
func (w *watching) stop() error {
	w.cancel()
	<-w.done
	return w.err
}

// observe reads the state of the server once. If there are many projects, the first ones represent
// all of them.
func (m *sustained) observe(ctx context.Context, list []target, w *watching) error {
	var queue float64
	some := list[:min(len(list), watchProjects)]
	for _, t := range some {
		status, err := t.retries.GetIngestion(ctx, t.first)
		if err != nil {
			return err
		}
		queue += float64(status.Readiness.Raw + status.Readiness.Comprehension + status.Readiness.Consolidation)
	}
	resident, err := m.metric(ctx, "process_resident_memory_bytes")
	if err != nil {
		return err
	}
	for _, metric := range oldestMetrics {
		age, err := m.metric(ctx, metric)
		if err != nil {
			return err
		}
		w.oldest = max(w.oldest, age)
	}
	w.queue = append(w.queue, queue*float64(len(list))/float64(len(some)))
	w.resident = append(w.resident, resident/(1<<20))
	return nil
}

func (w *watching) queueAt(part float64) float64    { return at(w.queue, part) }
func (w *watching) residentAt(part float64) float64 { return at(w.resident, part) }

func (w *watching) mostQueue() (most float64) {
	for _, q := range w.queue {
		most = max(most, q)
	}
	return most
}

// at returns the value observed after a fraction of the load, 0 if there is none.
func at(values []float64, part float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return values[min(int(part*float64(len(values))), len(values)-1)]
}

// cost is what a server has used so far.
type cost struct {
	processor processorTime
	events    float64 // 0 unless the event store is the embedded one
	bytes     int64   // of its log on disk, 0 if that is on another machine
}

func (m *sustained) cost(ctx context.Context) (c cost, err error) {
	if c.processor, err = m.processor(ctx); err != nil {
		return c, err
	}
	if c.events, err = m.metric(ctx, "annals_node_events_total"); err != nil {
		return c, err
	}
	c.bytes, err = folderBytes(filepath.Join(m.DataDir, "log"))
	return c, err
}

// costs reports the cost of each send since before.
func (m *sustained) costs(ctx context.Context, of string, before cost, sends int) error {
	after, err := m.cost(ctx)
	if err != nil {
		return err
	}
	if after.events > before.events {
		events := (after.events - before.events) / float64(sends)
		m.row(load.Row{What: "events of a send" + of, Value: events, Unit: "", Must: 2.5})
	}
	if after.bytes > before.bytes {
		size := float64(after.bytes-before.bytes) / float64(sends)
		m.row(load.Row{What: "bytes of log of a send, on disk" + of, Value: size, Unit: ""})
	}
	return m.spent(ctx, "single send with all that follows"+of, before.processor, sends)
}

// folderBytes sums the sizes of the files of a folder; 0 if there is no folder. Files may disappear
// meanwhile.
func folderBytes(dir string) (sum int64, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("size of the log: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("size of the log: %w", err)
		}
		sum += info.Size()
	}
	return sum, nil
}
