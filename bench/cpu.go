package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/annals-project/annals/internal/bench/load"
)

// processorTime is the processor time that the parts of a run have used, in seconds. The growth for
// each operation is its cost, also on a machine that is busy with other work.
type processorTime struct {
	service  float64 // without its Postgres
	postgres float64 // 0 unless it is the Postgres of a separate server
	load     float64 // of this process, which makes the calls
}

// processor reads the processor time used so far.
func (m *measurement) processor(ctx context.Context) (now processorTime, err error) {
	if now.service, err = m.metric(ctx, "process_cpu_seconds_total"); err != nil {
		return now, err
	}
	if m.own != nil && m.own.process != nil {
		if now.postgres, err = processorBelow("/proc", m.own.process.Process.Pid); err != nil {
			return now, err
		}
	}
	used, err := usedHere()
	now.load = used.Seconds()
	return now, err
}

// usedHere is the processor time that this process has used.
func usedHere() (time.Duration, error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0, fmt.Errorf("processor time of this process: %w", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), nil
}

// spent reports the processor time of each of count operations since before.
func (m *measurement) spent(ctx context.Context, what string, before processorTime, count int) error {
	after, err := m.processor(ctx)
	if err != nil {
		return err
	}
	show := func(of string, seconds float64) {
		m.row(load.Row{What: what + ", processor time of " + of, Value: 1e6 * seconds / float64(count), Unit: "µs"})
	}
	show("the service", after.service-before.service)
	if after.postgres > 0 {
		show("Postgres", after.postgres-before.postgres)
	}
	show("the load", after.load-before.load)
	return nil
}

// ticksPerSecond is the unit of times in /proc on every Linux that Go supports.
const ticksPerSecond = 100

// processorBelow returns the processor time of all descendants of a process in seconds, with that
// of ended ones that were waited for; 0 if the system has no /proc. The only child of a separate
// server is its Postgres.
func processorBelow(proc string, pid int) (seconds float64, err error) {
	names, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "stat"))
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	parents, ticks := map[int]int{}, map[int]float64{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the process has just ended
		}
		if err != nil {
			return 0, fmt.Errorf("read a process: %w", err)
		}
		p, err := parseStat(string(text))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		parents[p.id], ticks[p.id] = p.parent, p.own+p.ended
	}
	for id, used := range ticks {
		for up, known := parents[id]; known; up, known = parents[up] {
			if up == pid {
				seconds += used / ticksPerSecond
				break
			}
		}
	}
	return seconds, nil
}

// processorOf returns the processor time of one process in seconds, without its children; 0 if the system has no /proc.
func processorOf(proc string, pid int) (float64, error) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(proc, "self")); errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
	}
	if err != nil {
		return 0, fmt.Errorf("read a process: %w", err)
	}
	p, err := parseStat(string(text))
	return p.own / ticksPerSecond, err
}

// processStat is the state of a process: its processor time, and that of its children that ended and were waited for,
// in ticks.
type processStat struct {
	id, parent int
	own, ended float64
}

// parseStat reads a line of /proc/<pid>/stat. The name in it is in parentheses and may hold any
// character.
func parseStat(text string) (p processStat, err error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return p, fmt.Errorf("%q is not the state of a process", text)
	}
	fields := strings.Fields(text[end+1:])
	const parentAt, firstTime, times = 1, 11, 4 // user and system, then both of children that were waited for
	if len(fields) < firstTime+times {
		return p, fmt.Errorf("%q is not the state of a process", text)
	}
	var idErr, parentErr error
	p.id, idErr = strconv.Atoi(strings.TrimSpace(text[:open]))
	p.parent, parentErr = strconv.Atoi(fields[parentAt])
	for i, field := range fields[firstTime : firstTime+times] {
		ticks, tickErr := strconv.ParseFloat(field, 64)
		if i < times/2 {
			p.own += ticks
		} else {
			p.ended += ticks
		}
		err = errors.Join(err, tickErr)
	}
	return p, errors.Join(idErr, parentErr, err)
}
