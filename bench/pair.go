package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	client "github.com/annals-project/annals/client"
)

// PairOptions are what Pair compares, and how.
type PairOptions struct {
	PairSizes
	// Bases are the commits to compare the working tree with.
	Bases []string
	// Wait is the longest wait until everything that was sent can be recalled.
	Wait time.Duration
	// Progress receives a line for each value.
	Progress io.Writer
}

// PairSizes are the sizes of Pair.
type PairSizes struct {
	Rounds   int `json:"rounds"`
	Passages int `json:"passages"`
	Queries  int `json:"queries"`
	// For is how long a load lasts.
	For time.Duration `json:"-"`
	// Rates are those of the steady loads, in sends a second.
	Rates []int `json:"rates"`
	// Import is how many texts are imported during live sends.
	Import int `json:"import"`
}

// pairRun measures one service once.
type pairRun struct {
	measurement
	opts    PairOptions
	service pairService
	report  *PairReport
	// filled is the project of the passages, slug its slug.
	filled *client.Client
	slug   string
	// closed is the rate of the closed loop over the embedded event store.
	closed float64
}

// lack is why a service cannot take part in a part.
type lack string

func (l lack) Error() string { return string(l) }

// Pair builds the service of each base and of the working tree, and measures all of them in turn, each on a new folder
// with the default settings, over its API. The report has what was measured before an error, too.
func Pair(ctx context.Context, opts PairOptions) (report *PairReport, err error) {
	report = &PairReport{Sizes: opts.PairSizes, LoadSeconds: opts.For.Seconds(), Processors: runtime.NumCPU()}
	dir, err := os.MkdirTemp("", "annals-pair-")
	if err != nil {
		return report, fmt.Errorf("create a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	services, err := buildAll(ctx, ".", opts.Bases, dir)
	if err != nil {
		return report, err
	}
	for _, s := range services {
		report.Programs = append(report.Programs, s.PairProgram)
	}
	defer report.compare()
	for round := range opts.Rounds {
		for _, s := range services {
			_, _ = fmt.Fprintf(opts.Progress, "round %d of %d, %s\n", round+1, opts.Rounds, s.Name)
			if err := pairOnce(ctx, opts, s, report); err != nil {
				return report, fmt.Errorf("round %d, %s: %w", round+1, s.Name, err)
			}
		}
	}
	return report, nil
}

// pairOnce measures one service once: on the embedded event store, and then on annals node.
func pairOnce(ctx context.Context, opts PairOptions, s pairService, report *PairReport) error {
	m := &pairRun{opts: opts, service: s, report: report}
	if err := m.on(ctx, nil, m.embeddedParts()...); err != nil {
		return err
	}
	if why, lacks := s.lacks[partNode]; lacks {
		report.leaveOut(s.Name, partNode, why)
		return nil
	}
	node, err := startNode(ctx, s)
	if err != nil {
		return err
	}
	err = m.on(ctx, []string{"--eventstore", "esdb://" + node.addr + "?tls=false"}, pairPart{partNode, m.overNode})
	return errors.Join(err, node.remove())
}

// on starts the service on a new folder, and measures parts of it one after the other.
func (m *pairRun) on(ctx context.Context, flags []string, parts ...pairPart) error {
	m.measurement = newMeasurement(Config{Program: m.service.path, Wait: m.opts.Wait, Progress: m.opts.Progress})
	start := func(ctx context.Context) error {
		m.own.env = withoutSettings(os.Environ())
		m.own.flags = append(flags, m.service.flags...)
		return m.startOwn(ctx)
	}
	_, err := m.measure(ctx, start, func(ctx context.Context) error {
		for _, part := range parts {
			if err := m.part(ctx, part); err != nil {
				return fmt.Errorf("%s: %w", part.name, err)
			}
		}
		return nil
	})
	return err
}

// part measures one part, or leaves it out if the service lacks what it takes.
func (m *pairRun) part(ctx context.Context, part pairPart) error {
	if m.report.leavesOut(m.service.Name, part.name) {
		return nil
	}
	if why, lacks := m.service.lacks[part.name]; lacks {
		m.report.leaveOut(m.service.Name, part.name, why)
		return nil
	}
	err := part.measure(ctx)
	if why, lacks := lackOf(err); lacks && m.service.Name != thisTree {
		m.report.leaveOut(m.service.Name, part.name, why)
		return nil
	}
	return err
}

// lackOf reports whether an error means that a service lacks something, such as a route.
func lackOf(err error) (why string, lacks bool) {
	if l, is := errors.AsType[lack](err); is {
		return string(l), true
	}
	e, is := errors.AsType[*client.APIError](err)
	if !is {
		return "", false
	}
	switch e.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return fmt.Sprintf("it answers %d %s", e.Status, http.StatusText(e.Status)), true
	default:
		return "", false
	}
}

// value adds a value to the report.
func (m *pairRun) value(row PairRow, value float64) {
	m.report.add(m.service.Name, row, value)
	_, _ = fmt.Fprintf(m.Progress, "  %s: %.1f %s\n", row.What, value, row.Unit)
}

// ownNode is an event store in a process of its own.
type ownNode struct {
	child
	dir, addr string
}

// startNode starts the event store of a service on a new folder.
func startNode(ctx context.Context, s pairService) (*ownNode, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "annals-bench-node-")
	if err != nil {
		return nil, fmt.Errorf("create a folder: %w", err)
	}
	n := &ownNode{
		child: child{program: s.path, log: filepath.Join(dir, "node.log"), env: withoutSettings(os.Environ())},
		dir:   dir, addr: addr,
	}
	data := filepath.Join(dir, "data")
	err = n.child.run("node", "--data-dir", data, "--addr", addr, "--insecure", "--log-level", "warn")
	if err == nil {
		err = n.await(ctx, ownStartLimit, func(ctx context.Context) bool { return listens(ctx, addr) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("annals node: %w", err), n.remove())
	}
	return n, nil
}

// remove stops the event store and removes its folder.
func (n *ownNode) remove() error { return errors.Join(n.stop(), os.RemoveAll(n.dir)) }
