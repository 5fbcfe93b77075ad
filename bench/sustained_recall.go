package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/projections/runner"
)

// The recalls during sends.
const (
	busyRate = 200
	// busyRounds is how often a quiet and a busy measurement alternate, so that other work of the
	// machine affects both.
	busyRounds  = 4
	busyQueries = 150
)

// recalls measures recall without and with concurrent sends.
func (m *sustained) recalls(ctx context.Context) error {
	if m.opts.Passages == 0 {
		return nil
	}
	to, err := m.project(ctx, "recall")
	if err != nil {
		return err
	}
	count := max(m.opts.Passages/1000, 1)
	if _, _, err = load.Batches(ctx, to, count, 1000, passageWords, 2, m.run); err != nil {
		return err
	}
	if _, err = m.awaitSettled(ctx, to); err != nil {
		return err
	}
	m.sends += 1000 * count
	list, err := m.targets(ctx, "beside recall")
	if err != nil {
		return err
	}
	from, until := load.Window(count * 1000)
	var quiet, busy load.Times
	for round := range busyRounds {
		times, err := load.Recalls(ctx, to, busyQueries, from, until)
		if err != nil {
			return err
		}
		quiet = append(quiet, times...)
		if times, err = m.busyRecalls(ctx, to, list, round, from, until); err != nil {
			return err
		}
		busy = append(busy, times...)
	}
	p50 := quiet.Percentile(0.50)
	m.row(load.Row{What: "recall, quiet, p50", Value: p50, Unit: "ms"})
	m.row(load.Row{
		What: fmt.Sprintf("recall beside %d sends a second, p50", busyRate), Value: busy.Percentile(0.50),
		Unit: "ms", Must: 1.5 * p50, Bare: p50, BareOf: "quiet",
	})
	return nil
}

// busyRecalls measures recall during sends to other projects, and returns once these sends have ended.
func (m *sustained) busyRecalls(
	ctx context.Context, to *client.Client, list []target, round int, from, until time.Time,
) (times load.Times, err error) {
	calls := make([]*client.Client, len(list))
	for i, t := range list {
		calls[i] = t.calls
	}
	group, runCtx := errgroup.WithContext(ctx)
	enough := make(chan struct{})
	group.Go(func() error {
		sends := load.Sustained{
			To: calls, PerSecond: busyRate, Lasts: time.Hour, Until: enough, UnderWay: m.opts.UnderWay,
			Run: fmt.Sprintf("%s/beside/%d", m.run, round), Blind: true,
		}
		got, err := sends.Start(runCtx)
		m.sends += got.Acknowledged
		return err
	})
	group.Go(func() (err error) {
		defer close(enough)
		times, err = load.Recalls(runCtx, to, busyQueries, from, until)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return times, m.awaitAllSettled(ctx, list)
}

// rebuild rebuilds all projections while no server runs.
func (m *sustained) rebuild(ctx context.Context) error {
	if m.own == nil || m.sends == 0 || !m.opts.Rebuild {
		return nil
	}
	if err := m.own.stop(); err != nil {
		return err
	}
	began := time.Now()
	command := exec.CommandContext(ctx, m.own.program, "rebuild", "all", "--json", "--data-dir", m.own.dir)
	rebuilt, used, err := rebuilding(command)
	if err != nil {
		return err
	}
	took := time.Since(began)
	for _, r := range rebuilt {
		m.row(load.Row{What: "rebuild of " + r.Projection, Value: r.Rate(), Unit: "events/s", AtLeast: true})
	}
	scale := 100_000 / float64(m.sends)
	what := fmt.Sprintf("rebuild of all, for each 100,000 sends (of %s)", humanize.Comma(int64(m.sends)))
	m.row(load.Row{What: what, Value: scale * took.Seconds(), Unit: "s"})
	m.row(load.Row{What: what + ", processor time", Value: scale * used.Seconds(), Unit: "s"})
	return nil
}

// rebuilding runs a rebuild of projections, and returns how each one ended and the processor time of the command.
func rebuilding(command *exec.Cmd) (done []runner.RebuildProgress, used time.Duration, err error) {
	output, err := command.Output()
	if err != nil {
		if exit, is := errors.AsType[*exec.ExitError](err); is {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, 0, fmt.Errorf("rebuild: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(output)); lines.Scan(); {
		var r runner.RebuildProgress
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, 0, fmt.Errorf("decode the output of the rebuild: %w", err)
		}
		if r.Done {
			done = append(done, r)
		}
	}
	return done, command.ProcessState.UserTime() + command.ProcessState.SystemTime(), nil
}
