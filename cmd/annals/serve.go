package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/grammar"
	"github.com/annals-project/annals/cmd/annals/internal/logging"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/build"
)

// ServeCmd is "annals serve".
type ServeCmd struct {
	Settings
}

// Validate names every setting that cannot work.
func (c *ServeCmd) Validate() error { return c.Check() }

// Run serves until the context ends.
func (c *ServeCmd) Run(ctx context.Context, env *Env) (err error) {
	outliveOutput()
	if err := noCoreDumps(); err != nil {
		return err
	}
	cfg, err := c.config()
	if err != nil {
		return err
	}
	if cfg.Logger, err = c.logger(env); err != nil {
		return err
	}
	is := build.Get()
	cfg.Logger.InfoContext(ctx, "annals starts", "version", is.Version, "commit", is.Commit, "go", is.Go,
		"data", cfg.Data.Dir, "roles", cfg.Roles.String(), "heap_mib", limitHeap(env.Getenv)>>20)
	for _, unknown := range grammar.FindUnknown(env.Environ, env.Known) {
		args := []any{"variable", unknown.Name}
		if unknown.Nearest != "" {
			args = append(args, "nearest", unknown.Nearest)
		}
		cfg.Logger.WarnContext(ctx, "no setting reads this variable of the environment", args...)
	}
	cfg.Clock = env.Now
	service := announcement{Data: cfg.Data, New: cfg.Data.IsNew(), OpsAddr: c.OpsAddr}
	isPerson := logging.Format(c.LogFormat).For(env.Stderr) == logging.Text
	if isPerson {
		cfg.SignIn.ShowLink = func(link string) { service.OwnerLink = link }
	}
	cfg.Ready = func(urls auth.URLs) { service.ready(env.Stdout, urls, isPerson) }
	s, err := server.New(ctx, cfg)
	if err != nil {
		return err
	}
	stopped := announceStop(ctx, cfg.Logger)
	defer func() {
		err = errors.Join(err, s.Close())
		stopped()
	}()
	return s.Run(ctx)
}

// announcement is what is shown of a service.
type announcement struct {
	Data datafolder.Folder
	// New means that the data folder was new and empty at the start.
	New bool
	// OpsAddr is the separate address of the operation routes, "" for none.
	OpsAddr string
	// OwnerLink is where a person takes over the account of the owner, "" if somebody has or cannot see it.
	OwnerLink string
}

// ready writes that the service is ready: one line, or for a person several.
func (s announcement) ready(to io.Writer, urls auth.URLs, isPerson bool) {
	folder := s.Data.Dir
	if absolute, err := filepath.Abs(folder); err == nil {
		folder = absolute
	}
	keys, data := filepath.Join(folder, datafolder.CredentialsFile), folder
	if _, err := os.Stat(keys); err != nil {
		keys = "" // those of another process, or removed
	}
	if s.New {
		data += " (new, empty)"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "annals is ready: API on %s, data in %s", urls.API, data)
	if !isPerson {
		if keys != "" {
			fmt.Fprintf(&b, ", credentials in %s", keys)
		}
		_, _ = fmt.Fprintln(to, b.String())
		return
	}
	fmt.Fprintf(&b, "\n  version  %s\n  API      %s (all calls: %s/openapi.yaml)\n  console  %s\n"+
		"  agents   %s%s (Model Context Protocol)\n",
		build.Get().Version, urls.API, urls.API, urls.Console, urls.Console, auth.MCPPath)
	if s.OpsAddr != "" {
		fmt.Fprintf(&b, "  health   http://%s (/readyz, /metrics)\n", s.OpsAddr)
	}
	switch values, err := datafolder.ReadCredentials(s.Data.Dir); {
	case s.OwnerLink != "":
		fmt.Fprintf(&b, "  sign in  %s (once, within an hour)\n", s.OwnerLink)
	case err == nil && values[datafolder.OwnerPasswordName] != "":
		fmt.Fprintf(&b, "  sign in  with %s and %s of the file with the keys\n", datafolder.OwnerEmailName,
			datafolder.OwnerPasswordName)
	default:
		fmt.Fprintf(&b, "  sign in  at the console; who cannot gets a link by   %s person link ADDRESS%s\n", os.Args[0],
			s.folderFlag())
	}
	if keys != "" {
		fmt.Fprintf(&b, "  keys     %s\n", keys)
	}
	fmt.Fprintf(&b, "  next     %[1]s import PATH%[2]s   then   %[1]s recall \"QUESTION\" --identity NAME%[2]s\n"+
		"  stop     Ctrl-C\n", os.Args[0], s.folderFlag())
	_, _ = fmt.Fprint(to, b.String())
}

// folderFlag names the data folder for other commands, "" if it is the default.
func (s announcement) folderFlag() string {
	if filepath.Clean(s.Data.Dir) == "data" {
		return ""
	}
	return fmt.Sprintf(" --data-dir %q", s.Data.Dir)
}

// announceStop logs when ctx asks for a stop. The caller calls stopped once it has stopped.
func announceStop(ctx context.Context, logger *slog.Logger) (stopped func()) {
	began := make(chan time.Time, 1)
	begin := func() {
		logger.InfoContext(ctx, "stopping", "cause", signalOf(context.Cause(ctx)))
		began <- time.Now()
	}
	cancel := context.AfterFunc(ctx, begin)
	return func() {
		notBegun := cancel()
		if ctx.Err() == nil {
			return
		}
		if notBegun { // who waits for ctx may wake before begin runs
			begin()
		}
		took := time.Since(<-began).Round(100 * time.Millisecond)
		logger.InfoContext(ctx, "stopped", "took", took.String())
	}
}

// signalOf returns the usual name of the signal that ended a context.
func signalOf(cause error) string {
	text := cause.Error()
	for word, name := range map[string]string{"terminated": "SIGTERM", "interrupt": "SIGINT", "hangup": "SIGHUP"} {
		if strings.HasPrefix(text, word) {
			return name
		}
	}
	return text
}

// noCoreDumps disables core files of this process and of the programs that it starts, because its
// memory holds keys and texts of customers.
func noCoreDumps() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("switch core dumps off: %w", err)
	}
	return nil
}

const (
	// gcPercent lets the heap grow to three times its live part between collections. Most allocations
	// end with their request or page, so the live part is small. GOGC in the environment wins.
	gcPercent = 200
	// mostHeap is the heap size in bytes above which the collector runs more often, so that the garbage of
	// a few big answers does not fill the machine. The live part may exceed it. GOMEMLIMIT in the
	// environment wins.
	mostHeap = 640 << 20
	// heapShare is the part of the memory, in percent, that the heap may take. The private Postgres, the
	// index and the cache of files need the rest.
	heapShare = 40
)

// limitHeap sets the collector, unless the environment does, and returns the heap size that it aims at, 0 if the
// environment sets it.
func limitHeap(getenv func(string) string) (aim int64) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if getenv("GOMEMLIMIT") == "" {
		aim = heapAim(os.DirFS("/"))
		debug.SetMemoryLimit(aim)
	}
	return aim
}

// heapAim returns the heap size for the memory that a process may use: that of its cgroup or of the machine, as the
// files of the system state it. Without such files, as on macOS, it is mostHeap.
func heapAim(system fs.FS) int64 {
	available := int64(math.MaxInt64)
	for _, limit := range append(cgroupLimits(system), machineMemory(system)) {
		if limit > 0 {
			available = min(available, limit)
		}
	}
	if available > mostHeap*100/heapShare {
		return mostHeap
	}
	return available * heapShare / 100
}

// machineMemory reads the memory of the machine, 0 if it is not known.
func machineMemory(system fs.FS) int64 {
	text, err := fs.ReadFile(system, "proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil || kib > math.MaxInt64>>10 {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// cgroupLimits reads the limits of the cgroup of the process and of those above it, of version 2 or 1. In a container
// the path in /proc may be that of the host, whose own cgroup is then the root of the tree that the container sees.
func cgroupLimits(system fs.FS) (limits []int64) {
	text, err := fs.ReadFile(system, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		root, file := "sys/fs/cgroup", "memory.max"
		if parts[1] == "memory" {
			root, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if parts[0] != "0" {
			continue
		}
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			limits = append(limits, numberIn(system, path.Join(root, group, file)))
			if group == "/" {
				break
			}
		}
	}
	return limits
}

// numberIn reads a file that holds one number, 0 if it is none, as "max" is.
func numberIn(system fs.FS, name string) int64 {
	text, err := fs.ReadFile(system, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
