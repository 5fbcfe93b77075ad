// Package pg runs the private Postgres of an installation that names no server, opens pools of
// connections, and migrates the schema ops.
//
// # The private Postgres
//
// Start runs a server as a child process on the folder postgres of the data folder:
//
//	postgres/data     the database folder, made by initdb
//	postgres/socket   the Unix socket; only the server's user and root can connect
//	postgres.lock     locked while a process uses the data folder
//
// The programs are those of the machine if a version fits, else they are fetched once, checked
// against a pinned SHA-256 and cached. The server ends with this process. If this process was killed
// and left a server, the next start stops it. Supervise starts a server again that ends by itself.
//
// # The user that Postgres runs as
//
// Postgres refuses to run as root. If annals runs as an ordinary user, Postgres runs as the same
// user. If annals runs as root, the first of these that can write to the folder is used:
//
//  1. On Linux, a user namespace: outside, the process is root and the files belong to root; inside,
//     it has the id of an unprivileged user.
//  2. The owner of the data folder, or one of the users annals, postgres and _postgres.
//  3. A system user named annals, which is created if the machine has none of them.
//
// If none of them can reach the data folder, because a folder above it is closed to them, the
// database is in a folder below /var/lib, and postgres in the data folder is a link to it.
package pg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/eventstore/backoff"
)

// Config describes a private Postgres. Only DataDir is required.
type Config struct {
	// DataDir is the data folder of the installation; the server uses its subfolder postgres.
	DataDir string
	// Logger receives the server's messages, without statements and values of rows; nil discards them.
	Logger *slog.Logger
	// Settings override settings of the server (tests set fsync=off).
	Settings map[string]string

	// Tests of this package replace parts of the machine by these fields.
	noNamespaces  bool     // behave as if the kernel refused user namespaces
	noDeathSignal bool     // behave as on systems without a death signal
	searchPath    []string // folders to search for programs
	loaders       []string // files that show that the machine has a C library
	fallbackBase  string   // used in place of /var/lib
	repository    string   // used in place of the public repository of programs
	checksum      string   // of its archives, in place of the pinned ones
}

// Server is a running private Postgres. It listens on a Unix socket that only its user and root can
// connect to.
type Server struct {
	cfg    Config
	logger *slog.Logger
	lock   *os.File
	socket socketFolder
	close  func() error
	// cluster and bin start the server again.
	cluster cluster
	bin     installation

	mu      sync.Mutex
	process *process
}

const (
	role     = "annals"
	database = "annals"

	// maxConnections is enough for a process that rebuilds every projection in a shadow.
	maxConnections = 100

	startLimit = 2 * time.Minute  // a server that recovers from a crash starts slowly
	stopLimit  = 30 * time.Second // a fast shutdown writes a checkpoint
)

// Start starts the private Postgres of a data folder and returns when it accepts connections. It
// creates the folder and the database if they do not exist.
//
// It fails if another process uses the folder, if no programs are found or can be fetched, and if
// another major version made the database folder and its programs are not found. ctx limits the
// start only.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s := &Server{cfg: cfg, logger: cfg.Logger.With("part", "postgres")}
	s.close = sync.OnceValue(s.shutDown)
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start postgres: %w", err), s.close())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	began := time.Now()
	dataDir, err := filepath.Abs(s.cfg.DataDir)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if s.lock, err = lockFile(filepath.Join(dataDir, "postgres.lock")); err != nil {
		return err
	}
	user, home, err := s.chooseUser(ctx, dataDir)
	if err != nil {
		return err
	}
	c := cluster{home: home, user: user, settings: s.settings(), logger: s.logger, deathSignal: !s.cfg.noDeathSignal}
	s.cluster = c
	if err := c.stopOrphan(ctx); err != nil {
		return err
	}
	major, err := c.major()
	if err != nil {
		return err
	}
	bin, err := s.binaries(ctx, major, dataDir, home, user)
	if err != nil {
		return err
	}
	s.bin = bin
	if major == 0 {
		s.logger.InfoContext(ctx, "initialize database folder", "folder", home, "version", bin.version, "user", user.name)
		if err := c.init(ctx, bin); err != nil {
			return err
		}
	}
	if s.socket, err = openSocketFolder(home, user); err != nil {
		return err
	}
	if err := s.run(ctx); err != nil {
		return err
	}
	s.logger.InfoContext(ctx, "postgres is ready", "version", bin.version, "user", user.name, "folder", home,
		"took", time.Since(began).Round(time.Millisecond).String())
	return nil
}

// URL returns the address of the database for pgx: the folder of the socket, without a password.
func (s *Server) URL() string { return socketURL(s.socket.path, database) }

// socketURL escapes a space as %20: pgx, like libpq, takes a plus for itself.
func socketURL(folder, database string) string {
	host := strings.ReplaceAll(url.QueryEscape(folder), "+", "%20")
	return "postgres://" + role + "@/" + database + "?host=" + host + "&port=" + socketPort + "&sslmode=disable"
}

// Exited is closed once the server process that runs now has ended, for whatever reason.
func (s *Server) Exited() <-chan struct{} { return s.running().done }

// running returns the process that was started last, nil before the first.
func (s *Server) running() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// run starts the server process and returns when it accepts connections.
func (s *Server) run(ctx context.Context) error {
	p, err := s.cluster.run(ctx, s.bin, s.socket.path)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	return s.awaitReady(ctx, p)
}

// Close shuts the server down fast: it rolls back open transactions; everything committed is on the
// disk. Further calls return the first error.
func (s *Server) Close() error { return s.close() }

func (s *Server) shutDown() error {
	var errs []error
	if p := s.running(); p != nil {
		errs = append(errs, p.stop(stopLimit))
	}
	errs = append(errs, s.socket.remove())
	if s.lock != nil {
		errs = append(errs, unlockFile(s.lock))
	}
	return errors.Join(errs...)
}

// settings returns the settings of a small server that leaves memory and disk to this process.
func (s *Server) settings() map[string]string {
	settings := map[string]string{
		"listen_addresses":                "",
		"unix_socket_permissions":         "0700",
		"max_connections":                 strconv.Itoa(maxConnections),
		"shared_buffers":                  "128MB",
		"work_mem":                        "8MB",
		"maintenance_work_mem":            "64MB",
		"effective_cache_size":            "512MB",
		"random_page_cost":                "1.1",
		"jit":                             "off", // costs more than it saves on short statements
		"enable_memoize":                  "off", // recall looks up each row once, a cache of them takes a quarter of the time
		"max_parallel_workers_per_gather": "0",
		"max_worker_processes":            "4",
		"fsync":                           "on",
		"synchronous_commit":              "on",
		"wal_level":                       "minimal", // nobody replicates a private server
		"max_wal_senders":                 "0",
		"wal_compression":                 "off", // on, it takes half of the processor time of a rebuild
		"min_wal_size":                    "32MB",
		"max_wal_size":                    "1GB",
		"autovacuum":                      "on",
		"autovacuum_max_workers":          "2",
		"timezone":                        "UTC",
		"log_timezone":                    "UTC",
		"logging_collector":               "off",
		"log_destination":                 "stderr",
		"log_line_prefix":                 "",
		"log_min_messages":                "warning",
		// Statements and details contain text of customers.
		"log_min_error_statement": "panic",
		"log_error_verbosity":     "terse",
	}
	for name, value := range s.cfg.Settings {
		settings[strings.ToLower(name)] = value
	}
	return settings
}

// The SQL states that a start handles.
const (
	invalidCatalogName = "3D000"
	duplicateDatabase  = "42P04"
)

// awaitReady returns when the server accepts connections to the database. It creates the database if
// it does not exist.
func (s *Server) awaitReady(ctx context.Context, p *process) error {
	for wait := (backoff.Backoff{First: 2 * time.Millisecond, Longest: 100 * time.Millisecond}); ; {
		err := execute(ctx, s.URL(), "select 1")
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == invalidCatalogName {
			err = createDatabase(ctx, socketURL(s.socket.path, "postgres"))
		}
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("postgres ended: %w: %s", p.err, p.output)
		default:
		}
		if wait.Wait(ctx) != nil {
			return fmt.Errorf("postgres accepts no connections: %w: %w", context.Cause(ctx), err)
		}
	}
}

func createDatabase(ctx context.Context, url string) error {
	err := execute(ctx, url, "create database "+database)
	if exists, ok := errors.AsType[*pgconn.PgError](err); ok && exists.Code == duplicateDatabase {
		return nil
	}
	return err
}

// execute runs one statement on a new connection.
func execute(ctx context.Context, url, statement string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, statement)
	return err
}

const (
	// maxRestarts is how often a server may end by itself within restartWindow: one that ends again and again is not
	// repaired by another start.
	maxRestarts   = 5
	restartWindow = 10 * time.Minute
)

// Supervise starts the server again whenever it ends by itself, as after a crash or a kill, until ctx ends. Connections
// of before fail; new ones are accepted once the recovery of the server has ended. It fails if the server does not
// accept connections within the time of a start, or ends too often.
func (s *Server) Supervise(ctx context.Context) error {
	var ends []time.Time
	for {
		p := s.running()
		select {
		case <-ctx.Done():
			return nil
		case <-p.done:
		}
		if ctx.Err() != nil {
			return nil
		}
		ends = append(ends, time.Now())
		for time.Since(ends[0]) > restartWindow {
			ends = ends[1:]
		}
		if len(ends) > maxRestarts {
			return fmt.Errorf("the private Postgres ended %d times within %s, the last time with: %w: %s",
				len(ends), restartWindow, errors.Join(p.err), p.output)
		}
		s.logger.ErrorContext(ctx, "postgres ended by itself, will start it again", "err", p.err, "output", p.output.String())
		if err := s.restart(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("start the private Postgres again: %w", err)
		}
		s.logger.InfoContext(ctx, "postgres accepts connections again",
			"took", time.Since(ends[len(ends)-1]).Round(time.Millisecond).String())
	}
}

// restart starts the server until it accepts connections. What is left of the one before may hold its memory for a
// moment.
func (s *Server) restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for wait := (backoff.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}); ; {
		err := s.cluster.stopOrphan(ctx)
		if err == nil {
			err = s.run(ctx)
		}
		if err == nil {
			return nil
		}
		if wait.Wait(ctx) != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

const (
	// socketPort is only part of the name of the socket.
	socketPort = "5432"
	socketName = ".s.PGSQL." + socketPort
	// maxSocketPath is the most bytes of a socket path, without the final zero: 107 on Linux, 103 on
	// macOS.
	maxSocketPath = 103
	// shortPrefix identifies the temporary folders, so that a folder left by a killed process is removed.
	shortPrefix = "annals-pg-"
)

// socketFolder contains the server's socket. It is below the data folder, or a temporary folder if
// that path is too long.
type socketFolder struct {
	path      string
	temporary bool
}

// openSocketFolder creates the folder, with mode 0700 and owned by the server's user.
func openSocketFolder(home string, user osUser) (socketFolder, error) {
	path := filepath.Join(home, "socket")
	if socketPathFits(path) {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return socketFolder{}, fmt.Errorf("socket folder: %w", err)
		}
		return socketFolder{path: path}, user.takeOver(path)
	}
	var errs []error
	for _, base := range []string{os.TempDir(), "/tmp"} {
		path, err := os.MkdirTemp(base, shortPrefix)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !socketPathFits(path) {
			errs = append(errs, fmt.Errorf("%s is too long for a socket", path), os.Remove(path))
			continue
		}
		return socketFolder{path: path, temporary: true}, user.takeOver(path)
	}
	return socketFolder{}, fmt.Errorf("socket folder: %w", errors.Join(errs...))
}

// socketPathFits also rejects a comma, since clients split lists of hosts at commas.
func socketPathFits(folder string) bool {
	return len(filepath.Join(folder, socketName)) <= maxSocketPath && !strings.Contains(folder, ",")
}

func (f socketFolder) remove() error {
	if !f.temporary {
		return nil
	}
	if err := os.RemoveAll(f.path); err != nil {
		return fmt.Errorf("remove socket folder: %w", err)
	}
	return nil
}

// removeOrphanedSocket removes the temporary socket folder of a server that was killed, and no other folder.
func removeOrphanedSocket(folder string) error {
	if !strings.HasPrefix(filepath.Base(folder), shortPrefix) {
		return nil
	}
	for _, name := range []string{socketName, socketName + ".lock", ""} {
		if err := os.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove socket folder of an earlier server: %w", err)
		}
	}
	return nil
}

// lockFile locks a data folder for this process until the file is closed or the process ends.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock of the data folder: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("the data folder is in use by another annals (%s is locked)", path)
	} else if err != nil {
		err = fmt.Errorf("lock of the data folder: %w", err)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// unlockFile releases the lock. Closing the file alone keeps it as long as a child that another
// goroutine is starting has inherited the file.
func unlockFile(file *os.File) error {
	return errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
}
