package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// vanishTime is how long a scavenge waits for the engine to delete files: readers use them for
// moments only.
const vanishTime = 5 * time.Minute

// lockFiles prevents concurrent deletions and copies of files.
func (s *store) lockFiles(ctx context.Context) error {
	select {
	case s.files <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.failure.done:
		return s.failure.get()
	}
}

func (s *store) unlockFiles() { <-s.files }

// commit writes a batch with an fsync, and closes it.
func (s *store) commit(batch *pebble.Batch) error {
	if err := s.failure.get(); err != nil {
		return errors.Join(err, batch.Close())
	}
	if err := errors.Join(s.write(batch), batch.Close()); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

// write writes a batch with an fsync. Every write of the log goes through here.
func (s *store) write(batch *pebble.Batch) error {
	s.writes.RLock()
	defer s.writes.RUnlock()
	return batch.Commit(pebble.Sync)
}

// flush writes the memory to tables and begins a new write-ahead log. The logs before it are no
// longer needed when it returns.
func (s *store) flush(ctx context.Context) error {
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		return fmt.Errorf("flush the log: %w", err)
	}
	select {
	case <-flushed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.failure.done:
		return s.failure.get()
	}
}

// tables returns the numbers of the files that the engine uses.
func (s *store) tables() (map[uint64]struct{}, error) {
	levels, err := s.db.SSTables()
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	out := map[uint64]struct{}{}
	for _, level := range levels {
		for _, t := range level {
			out[uint64(t.BackingSSTNum)] = struct{}{}
		}
	}
	return out, nil
}

func (s *store) newestTable() (newest uint64, err error) {
	live, err := s.tables()
	for n := range live {
		newest = max(newest, n)
	}
	return newest, err
}

// staleTables returns the files in the folder that the engine does not use: it will delete them, or
// is still writing them.
func (s *store) staleTables() (map[uint64]struct{}, error) {
	names, err := s.disk.List(s.disk.dir)
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	live, err := s.tables()
	if err != nil {
		return nil, err
	}
	out := map[uint64]struct{}{}
	for _, name := range names {
		stem, ok := strings.CutSuffix(name, ".sst")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(stem, 10, 64)
		if _, used := live[n]; err == nil && !used {
			out[n] = struct{}{}
		}
	}
	return out, nil
}

// awaitDeleted waits until the files that the engine no longer uses are deleted: it deletes them in
// the background, once no reader has them open.
func (s *store) awaitDeleted(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, vanishTime, errors.New("a reader still uses them"))
	defer cancel()
	var waiting map[uint64]struct{}
	for {
		changed := s.jobs.next()
		stale, err := s.staleTables()
		if err != nil {
			return err
		}
		if waiting == nil {
			waiting = stale
		}
		maps.DeleteFunc(waiting, func(n uint64, _ struct{}) bool {
			_, still := stale[n]
			return !still
		})
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-s.failure.done:
			return s.failure.get()
		case <-ctx.Done():
			return fmt.Errorf("%d old files are not deleted: %w", len(waiting), context.Cause(ctx))
		}
	}
}
