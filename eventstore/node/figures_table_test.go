package node

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
)

// figures collects the rows of the table.
type figures struct {
	b     *testing.B
	fsync time.Duration
	rows  []row
}

// row is one line: a measured value next to its bound and to the values of the layers below.
type row struct {
	what, unit string
	value      float64
	// must is the least allowed value, or the most if less is set; 0 for a figure that is only
	// printed.
	must   float64
	mustBe string
	less   bool
	// unsynced and engine are the same load without fsync and on the storage engine alone; 0 where
	// there is no such thing.
	unsynced, engine float64
	// cpu is the time that all processors together spent on one: client, node and storage.
	cpu, engineCPU time.Duration
	perFsync       float64
}

func (r row) verdict() string {
	switch {
	case r.must == 0:
		return ""
	case r.less == (r.value < r.must):
		return "ok"
	default:
		return "MISSED"
	}
}

func mustRate(must float64) string {
	if must == 0 {
		return ""
	}
	return "target"
}

// print writes the table. What could not be measured is left empty.
func (t *figures) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	line := func(cells ...string) {
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			t.b.Error(err)
		}
	}
	line("", "measured", "must", "", "CPU each", "per fsync", "no fsync", "ratio", "bare engine", "ratio", "its CPU")
	for _, r := range t.rows {
		must := ""
		if r.must != 0 {
			must = fmt.Sprintf("%s (%s)", number(r.must), r.mustBe)
		}
		line(
			r.what,
			number(r.value)+" "+r.unit,
			must,
			r.verdict(),
			micros(r.cpu),
			number(r.perFsync),
			number(r.unsynced),
			quotient(r.value, r.unsynced),
			number(r.engine),
			quotient(r.value, r.engine),
			micros(r.engineCPU),
		)
	}
	if err := w.Flush(); err != nil {
		t.b.Error(err)
	}
}

func number(v float64) string {
	switch {
	case v == 0:
		return ""
	case v < 100:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

func quotient(a, b float64) string {
	if b == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", a/b)
}

func micros(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f µs", float64(d.Nanoseconds())/1000)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// sub runs a part of the measurement, and ends afterwards everything that the part started.
func (t *figures) sub(name string, f func(*testing.B)) {
	t.b.Helper()
	if !t.b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
		if b.N == 1 { // once, however often the framework wants it
			f(b)
		}
	}) {
		t.b.FailNow()
	}
}

// measured is what a load did.
type measured struct {
	calls    uint64
	wall     time.Duration
	cpu      time.Duration
	perFsync float64
}

func (m measured) rate() float64 {
	if m.wall == 0 {
		return 0
	}
	return float64(m.calls) / m.wall.Seconds()
}

func (m measured) cpuEach() time.Duration { return m.cpu / time.Duration(max(m.calls, 1)) }

// timed measures one call that does n things.
func timed(n int, call func() error) (measured, error) {
	cpu, begun := cpuTime(), time.Now()
	err := call()
	return measured{calls: uint64(n), wall: time.Since(begun), cpu: cpuTime() - cpu}, err
}

// run has callers call for figureTime, after figureWarm; begin is called in between.
func run(b *testing.B, callers int, begin func(), call func(context.Context) error) measured {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var done atomic.Uint64
	var running sync.WaitGroup
	failures := make(chan error, callers)
	for range callers {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := call(context.WithoutCancel(ctx)); err != nil {
					failures <- err
					return
				}
				done.Add(1)
			}
		})
	}
	timer := time.NewTimer(figureWarm)
	defer timer.Stop()
	<-timer.C
	begin()
	calls, cpu, begun := done.Load(), cpuTime(), time.Now()
	timer.Reset(figureTime)
	<-timer.C
	m := measured{calls: done.Load() - calls, cpu: cpuTime() - cpu, wall: time.Since(begun)}
	cancel()
	running.Wait()
	select {
	case err := <-failures:
		b.Fatal(err)
	default:
	}
	return m
}

// cpuTime is what this process used of all processors so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("the system does not say what was used: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
