package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
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

// pairService is a service that Pair measures.
type pairService struct {
	PairProgram
	path string
	// lacks has the parts that it cannot take part in, with the reasons.
	lacks map[string]string
	// flags are those of "serve" that it knows.
	flags []string
}

// thisTree names the service of the working tree.
const thisTree = "this tree"

// removeLimit is how long the removal of a tree of git may take, after an interrupt too.
const removeLimit = time.Minute

// buildAll builds the service of each base and that of the working tree that from is in, which is the last, into a
// folder.
func buildAll(ctx context.Context, from string, bases []string, dir string) ([]pairService, error) {
	root, err := git(ctx, from, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	var services []pairService
	for n, base := range bases {
		commit, err := git(ctx, root, "rev-parse", "--verify", "--end-of-options", base+"^{commit}")
		if err != nil {
			return nil, fmt.Errorf("%q is not a commit: %w", base, err)
		}
		s := pairService{
			PairProgram: PairProgram{Name: base, Commit: commit}, path: filepath.Join(dir, fmt.Sprintf("annals-%d", n)),
		}
		if err := buildCommit(ctx, root, filepath.Join(dir, "tree"), s); err != nil {
			return nil, fmt.Errorf("%s: %w", base, err)
		}
		services = append(services, s)
	}
	commit, err := git(ctx, root, "rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	changes, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	this := pairService{
		PairProgram: PairProgram{Name: thisTree, Commit: commit, Changed: changes != ""}, path: filepath.Join(dir, "annals"),
	}
	if err := build(ctx, root, this.path); err != nil {
		return nil, err
	}
	services = append(services, this)
	for i := range services {
		if err := services[i].inspect(ctx); err != nil {
			return nil, err
		}
	}
	return services, nil
}

// buildCommit builds the service of a commit in a tree of its own, which it removes again.
func buildCommit(ctx context.Context, root, tree string, s pairService) (err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
		defer cancel()
		if _, statErr := os.Stat(tree); statErr != nil {
			return // git did not create it
		}
		_, removeErr := git(ctx, root, "worktree", "remove", "--force", tree)
		err = errors.Join(err, removeErr)
	}()
	if _, err := git(ctx, root, "worktree", "add", "--detach", "--quiet", tree, s.Commit); err != nil {
		return err
	}
	return build(ctx, tree, s.path)
}

// build builds the service of a tree, each with the flags of the Makefile.
func build(ctx context.Context, tree, to string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", to, "./cmd/annals")
	command.Dir, command.Env = tree, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build annals: %w: %s", err, output)
	}
	return nil
}

// git runs a command of git in a folder.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = dir
	output, err := command.Output()
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return "", fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(output)), nil
}

// inspect finds out what a service has.
func (s *pairService) inspect(ctx context.Context) error {
	help := func(of string) (string, error) {
		command := exec.CommandContext(ctx, s.path, of, "--help")
		command.Env = withoutSettings(os.Environ())
		output, err := command.Output()
		if _, refused := errors.AsType[*exec.ExitError](err); refused && of != "serve" {
			return "", nil // it has no such command
		}
		if err != nil {
			return "", fmt.Errorf("%s: annals %s --help: %w", s.Name, of, err)
		}
		return string(output), nil
	}
	serve, err := help("serve")
	if err != nil {
		return err
	}
	node, err := help("node")
	if err != nil {
		return err
	}
	s.lacks, s.flags = lacking(serve, node), known(serve, "--rate-limit-per-minute=0")
	return nil
}

// lacking returns the parts that a service lacks by the help of two of its commands.
func lacking(serve, node string) map[string]string {
	lacks := map[string]string{}
	switch {
	case !strings.Contains(node, "--insecure"):
		lacks[partNode] = "it has no annals node that serves without TLS"
	case !strings.Contains(serve, "--eventstore"):
		lacks[partNode] = "it uses no event store outside its process"
	}
	if !strings.Contains(serve, "--console-addr") {
		lacks[partPage] = noConsole
	}
	return lacks
}

// known returns the flags that a help lists.
func known(help string, flags ...string) (list []string) {
	for _, flag := range flags {
		name, _, _ := strings.Cut(flag, "=")
		if strings.Contains(help, name) {
			list = append(list, flag)
		}
	}
	return list
}

// withoutSettings returns an environment without the settings of a service: each service that is compared has the
// defaults.
func withoutSettings(env []string) []string {
	list := make([]string, 0, len(env))
	for _, variable := range env {
		if !strings.HasPrefix(variable, "ANNALS_") {
			list = append(list, variable)
		}
	}
	return list
}
