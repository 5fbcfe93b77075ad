// Package pg runs the private Postgres of an installation that has none of its own, opens pools, and keeps schema ops up to date.
package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config says where a private Postgres lives.
type Config struct {
	// DataDir is the data folder of the installation; the server lives in its subfolder postgres.
	DataDir string
	// Logger takes what the server says, without statements or values of rows.
	Logger *slog.Logger
	// Settings are added to the server's own settings and win over them (tests set fsync=off).
	Settings map[string]string

	// The rest stands in for the machine in tests of this package.
	noNamespaces  bool     // as if the kernel refused user namespaces
	noDeathSignal bool     // as on systems without one: the server outlives a killed parent
	searchPath    []string // folders of binaries instead of the machine's
	elsewhere     string   // instead of /var/lib
	repository    string   // instead of the public repository of binaries
	checksum      string   // of its archives, instead of the pinned ones
}

// Server is a running private Postgres. It listens on a Unix socket that only this user, or root, can reach.
type Server struct {
	cfg     Config
	log     *slog.Logger
	lock    *os.File
	socket  socketFolder
	process *process
	close   func() error
}

const (
	role     = "annals"
	database = "annals"

	// mostConnections is enough for a process that rebuilds every projection in a shadow.
	mostConnections = 100

	startLimit = 2 * time.Minute  // a server that recovers from a crash is slow
	stopLimit  = 30 * time.Second // of a fast shutdown, which writes a checkpoint
)

// Start starts the private Postgres of a data folder, which it creates where there is none, and returns when it takes connections.
//
// It fails where another process uses the folder, where no binaries are found and none can be fetched, and where the folder was
// made by another major version whose binaries are not found either. ctx limits the start only.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s := &Server{cfg: cfg, log: cfg.Logger.With("part", "postgres")}
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
	who, home, err := s.settle(ctx, dataDir)
	if err != nil {
		return err
	}
	c := cluster{home: home, who: who, settings: s.settings(), log: s.log, deathSignal: !s.cfg.noDeathSignal}
	if err := c.stopOrphan(ctx); err != nil {
		return err
	}
	major, err := c.major()
	if err != nil {
		return err
	}
	bin, err := s.binaries(ctx, major, dataDir, home, who)
	if err != nil {
		return err
	}
	if major == 0 {
		s.log.InfoContext(ctx, "initialising database folder", "folder", home, "version", bin.version, "as", who.name)
		if err := c.init(ctx, bin); err != nil {
			return err
		}
	}
	if s.socket, err = openSocketFolder(home, who); err != nil {
		return err
	}
	if s.process, err = c.run(ctx, bin, s.socket.path); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "postgres is ready", "version", bin.version, "as", who.name, "folder", home, "took", time.Since(began).Round(time.Millisecond).String())
	return nil
}

// URL is the address of the database for pgx; it names the socket's folder and no password.
func (s *Server) URL() string { return socketURL(s.socket.path, database) }

func socketURL(folder, database string) string {
	return "postgres://" + role + "@/" + database + "?host=" + url.QueryEscape(folder) + "&port=" + socketPort + "&sslmode=disable"
}

// Exited is closed once the server process is gone, wanted or not.
func (s *Server) Exited() <-chan struct{} { return s.process.done }

// Close shuts the server down fast: open transactions are rolled back, everything committed is on disk. More calls return the first one's error.
func (s *Server) Close() error { return s.close() }

func (s *Server) shutDown() error {
	var errs []error
	if s.process != nil {
		errs = append(errs, s.process.stop(stopLimit))
	}
	errs = append(errs, s.socket.remove())
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// settings are the server's: an embedded, small one that yields memory and disk to the rest of the process.
func (s *Server) settings() map[string]string {
	settings := map[string]string{
		"listen_addresses":                "",
		"unix_socket_permissions":         "0700",
		"max_connections":                 strconv.Itoa(mostConnections),
		"shared_buffers":                  "128MB",
		"work_mem":                        "8MB",
		"maintenance_work_mem":            "64MB",
		"effective_cache_size":            "512MB",
		"random_page_cost":                "1.1",
		"jit":                             "off", // costs more than it gives on short statements
		"max_parallel_workers_per_gather": "0",
		"max_worker_processes":            "4",
		"fsync":                           "on",
		"synchronous_commit":              "on",
		"wal_level":                       "minimal", // nobody replicates a private server
		"max_wal_senders":                 "0",
		"wal_compression":                 "on",
		"min_wal_size":                    "32MB",
		"max_wal_size":                    "256MB",
		"autovacuum":                      "on",
		"autovacuum_max_workers":          "2",
		"timezone":                        "UTC",
		"log_timezone":                    "UTC",
		"logging_collector":               "off",
		"log_destination":                 "stderr",
		"log_line_prefix":                 "",
		"log_min_messages":                "warning",
		// Statements and details hold text of customers.
		"log_min_error_statement": "panic",
		"log_error_verbosity":     "terse",
	}
	for name, value := range s.cfg.Settings {
		settings[strings.ToLower(name)] = value
	}
	return settings
}
