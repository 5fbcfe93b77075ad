package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/hostile"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/internal/scrapetest"
)

// ownServer is a separate server that a benchmark starts for itself.
type ownServer struct {
	child
	dir, addr, url string
	// console is the URL of its console.
	console string
	// limit is the longest time that a start may take.
	limit time.Duration
	// flags are additional flags of "serve".
	flags []string
}

// ownStartLimit is the longest time that the start of a separate server may take.
const ownStartLimit = 2 * time.Minute

// newOwn creates a folder and an address for a server that runs a program.
func newOwn(ctx context.Context, program string) (*ownServer, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	console, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "annals-bench-")
	if err != nil {
		return nil, fmt.Errorf("create a folder: %w", err)
	}
	return &ownServer{
		child: child{program: program, log: filepath.Join(dir, "serve.log")},
		dir:   filepath.Join(dir, "data"), addr: addr, url: "http://" + addr, console: "http://" + console,
		limit: ownStartLimit,
	}, nil
}

// start runs the server, waits until it is ready, and returns how long that took. The log of the
// server is a file next to its data.
func (s *ownServer) start(ctx context.Context) (time.Duration, error) {
	c, err := clientOf(s.url, "", client.WithAttemptTimeout(5*time.Second))
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := s.child.run(append([]string{
		"serve", "--data-dir", s.dir, "--api-addr", s.addr, "--console-addr", strings.TrimPrefix(s.console, "http://"),
		"--log-level", "warn",
	}, s.flags...)...); err != nil {
		return 0, err
	}
	err = s.await(ctx, s.limit, func(ctx context.Context) bool {
		status, err := c.Ready(ctx)
		return err == nil && status.Ready
	})
	if err != nil {
		return 0, errors.Join(err, s.stop())
	}
	return time.Since(began), nil
}

func freeAddr(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// remove stops the server and removes its folder.
func (s *ownServer) remove() error {
	return errors.Join(s.stop(), os.RemoveAll(filepath.Dir(s.dir)))
}

// child is a process that a benchmark starts and ends.
type child struct {
	program string
	// log is the file that its output is added to.
	log string
	// env is its environment; nil is that of this process.
	env     []string
	process *exec.Cmd
	// exited is closed once the process has ended.
	exited chan struct{}
}

// stopLimit is the longest time that a child may take to stop.
const stopLimit = time.Minute

// run starts the program.
func (c *child) run(args ...string) error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("create a log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child holds it open
	process, exited := exec.Command(c.program, args...), make(chan struct{})
	process.Stdout, process.Stderr, process.Env = log, log, c.env
	if err := process.Start(); err != nil {
		return fmt.Errorf("start %s: %w", args[0], err)
	}
	c.process, c.exited = process, exited
	go func() {
		defer close(exited)
		_ = process.Wait() // ProcessState has the result
	}()
	return nil
}

// await waits until the child is ready.
func (c *child) await(ctx context.Context, limit time.Duration, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ready(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server did not become ready: %w", ctx.Err())
		case <-c.exited:
			return fmt.Errorf("the server ended before it was ready, with %v", c.process.ProcessState)
		case <-tick.C:
		}
	}
}

// stop ends the child in order and waits for it. It does nothing if the child does not run.
func (c *child) stop() error {
	if c.process == nil {
		return nil
	}
	err := c.process.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-c.exited:
	case <-time.After(stopLimit):
		err = errors.Join(err, errors.New("the server did not stop and was killed"), c.process.Process.Kill())
		<-c.exited
	}
	c.process = nil
	return err
}

// showLog writes the end of the child's log, for a benchmark that failed.
func (c *child) showLog(w io.Writer) {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return // the child never started; the error of the benchmark has the reason
	}
	_, _ = w.Write(text[max(0, len(text)-4<<10):])
}

// The names in the credentials file of a data folder.
const (
	credentialsFile   = "credentials.env"
	managementKeyName = "ANNALS_MANAGEMENT_KEY"
	ownerEmailName    = "ANNALS_OWNER_EMAIL"
	ownerPasswordName = "ANNALS_OWNER_PASSWORD"
)

// Credentials reads the lines of the credentials file of a data folder, an empty map without the file.
func Credentials(dataDir string) (map[string]string, error) {
	values := map[string]string{}
	text, err := os.ReadFile(filepath.Join(dataDir, credentialsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return values, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if ok && !strings.HasPrefix(name, "#") {
			values[name] = strings.Trim(value, `'"`)
		}
	}
	return values, lines.Err()
}

// hashKey reads the hash key of a data folder.
func hashKey(dataDir string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, "hash.key"))
	if err != nil {
		return nil, fmt.Errorf("read the hash key: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("read the hash key: %w", err)
	}
	return key, nil
}

// FindService returns the program of the service: the given one, else annals in the folder of this program, else annals
// in the PATH.
func FindService(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "annals")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	found, err := exec.LookPath("annals")
	if err != nil {
		return "", fmt.Errorf("find the service: %w: name it with --service", err)
	}
	return found, nil
}

// operate runs a command of the service as the operator of a data folder, and decodes its JSON into out.
func operate(ctx context.Context, program, dataDir string, out any, args ...string) error {
	return operateWith(ctx, program, dataDir, "", out, args...)
}

// operateWith is operate with a project key, which other users of the machine do not see in the environment.
func operateWith(ctx context.Context, program, dataDir, key string, out any, args ...string) error {
	args = append(args, "--json", "--data-dir", dataDir)
	command := exec.CommandContext(ctx, program, args...)
	if key != "" {
		command.Env = append(os.Environ(), "ANNALS_PROJECT_KEY="+key)
	}
	answer, err := command.Output()
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return fmt.Errorf("%s", strings.TrimPrefix(strings.TrimSpace(string(exit.Stderr)), "annals: "))
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("decode the output of annals %s: %w", args[0], err)
	}
	return nil
}

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

// goroutines returns how many goroutines the service has. It waits up to 30 s until they are at most
// most; 0 does not wait.
func goroutines(ctx context.Context, base string, most float64) (count float64) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	const tries = 150
	for range tries {
		var err error
		if count, err = scrapetest.Metric(ctx, base, "go_goroutines"); err == nil && (most == 0 || count <= most) {
			return count
		}
		select {
		case <-ctx.Done():
			return count
		case <-tick.C:
		}
	}
	return count
}

// guard watches the memory of a separate server, kills the server before it uses up the machine, and
// restarts it after it ended by itself.
type guard struct {
	own   *ownServer
	limit int64

	mu       sync.Mutex
	most     int64
	restarts int
	err      error
}

// maxRestarts is how often a server that ends by itself is restarted.
const maxRestarts = 3

// start watches until stop is called. The context that it returns ends if the server is killed or
// cannot be restarted.
func (g *guard) start(ctx context.Context, log io.Writer) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-g.own.exited:
				g.own.showLog(log)
				if err := g.restart(watched); err != nil {
					g.err = err
					cancel(err)
					return
				}
			case <-tick.C:
				resident, err := hostile.Resident(g.own.process.Process.Pid)
				g.mu.Lock()
				g.most = max(g.most, resident)
				g.mu.Unlock()
				if err != nil || resident > g.limit {
					over := fmt.Errorf("the server had %d MiB of memory and was killed", resident>>20)
					g.err = errors.Join(err, over, g.own.process.Process.Kill())
					<-g.own.exited
					g.restarts++
					cancel(g.err)
					return
				}
			}
		}
	})
	return watched, func() {
		close(stopped)
		group.Wait()
		cancel(nil)
	}
}

// restart restarts a server that ended by itself.
func (g *guard) restart(ctx context.Context) error {
	if g.restarts++; g.restarts > maxRestarts {
		return fmt.Errorf("the server ended %d times", g.restarts)
	}
	if _, err := g.own.start(ctx); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	return nil
}

// reset discards the most memory so far.
func (g *guard) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = 0
}

// peak returns the most memory since the last reset.
func (g *guard) peak() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// ended reports whether the server has ended.
func (g *guard) ended() bool {
	if g.own.process == nil {
		return true
	}
	select {
	case <-g.own.exited:
		return true
	default:
		return false
	}
}
