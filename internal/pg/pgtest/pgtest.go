// Package pgtest gives each test a Postgres database of its own.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg"
)

// Variable names the environment variable with the URL of a server to use, by a user who may create databases, instead of a
// private one.
const Variable = "ANNALS_TEST_POSTGRES"

// shared is the server of this test process. Tests have no other place than a variable to find what TestMain keeps for them.
var shared struct {
	sync.Mutex
	running  bool // within Run
	server   *pg.Server
	dir      string
	admin    *pgx.Conn
	url      string // of any database of the server
	template string
}

var numbers atomic.Int64

const folderPrefix = "annals-pgtest-"

// Main runs the tests and exits: func TestMain(m *testing.M) { pgtest.Main(m) }. The first test that asks for a database
// starts the server, Main stops and removes it.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for a TestMain that has more to do; it returns the exit code.
func Run(m *testing.M) int {
	shared.running = true
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		return max(code, 1)
	}
	return code
}

// Database is a pool on a fresh database with schema ops migrated; it is dropped with the end of the test.
func Database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pg.OpenPool(t.Context(), URL(t))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// URL is the address of a fresh database with schema ops migrated; it is dropped with the end of the test.
func URL(t testing.TB) string {
	t.Helper()
	name, address, err := create(t.Context())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := drop(name); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return address
}

func create(ctx context.Context) (name, address string, err error) {
	shared.Lock()
	defer shared.Unlock()
	if !shared.running {
		return "", "", errors.New("the package needs func TestMain(m *testing.M) { pgtest.Main(m) }")
	}
	if shared.admin == nil {
		if err := start(ctx); err != nil {
			return "", "", err
		}
	}
	name = newName()
	if _, err := shared.admin.Exec(ctx, "create database "+name+" template "+shared.template); err != nil {
		return "", "", fmt.Errorf("create database: %w", err)
	}
	address, err = onDatabase(shared.url, name)
	return name, address, err
}

func drop(name string) error {
	shared.Lock()
	defer shared.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := shared.admin.Exec(ctx, "drop database "+name+" with (force)"); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

// start starts the server, or takes the one that the environment names, and makes the template.
func start(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // the server outlives the test that is the first to want it
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	shared.url = os.Getenv(Variable)
	if shared.url == "" {
		if err := removeLeft(); err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", folderPrefix+strconv.Itoa(os.Getpid())+"-")
		if err != nil {
			return fmt.Errorf("folder of the server: %w", err)
		}
		shared.dir = dir
		// A test's data need not survive the machine.
		settings := map[string]string{
			"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_connections": "400",
		}
		if shared.server, err = pg.Start(ctx, pg.Config{DataDir: dir, Settings: settings}); err != nil {
			return err
		}
		shared.url = shared.server.URL()
	}
	admin, err := pgx.Connect(ctx, shared.url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	shared.admin, shared.template = admin, newName()
	if _, err := admin.Exec(ctx, "create database "+shared.template); err != nil {
		return fmt.Errorf("create template: %w", err)
	}
	address, err := onDatabase(shared.url, shared.template)
	if err != nil {
		return err
	}
	pool, err := pg.OpenPool(ctx, address)
	if err != nil {
		return err
	}
	defer pool.Close()
	return pg.Migrate(ctx, pool)
}

// stop leaves nothing: no template on a server that was named, no server and no folder otherwise.
func stop() error {
	shared.Lock()
	defer shared.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	if shared.admin != nil {
		_, err := shared.admin.Exec(ctx, "drop database if exists "+shared.template+" with (force)")
		errs = append(errs, err, shared.admin.Close(ctx))
	}
	if shared.server != nil {
		errs = append(errs, shared.server.Close())
	}
	if shared.dir != "" {
		errs = append(errs, os.RemoveAll(shared.dir))
	}
	return errors.Join(errs...)
}

// newName is a name of a database that no other process of this machine draws meanwhile.
func newName() string {
	return fmt.Sprintf("annals_test_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), numbers.Add(1))
}

// onDatabase is the URL of another database of the same server.
func onDatabase(address, name string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("%s must be a postgres:// URL: %w", Variable, err)
	}
	u.Path = "/" + name
	return u.String(), nil
}

// removeLeft removes folders of test processes that were killed; their servers ended with them.
func removeLeft() error {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	if err != nil {
		return fmt.Errorf("folders of earlier tests: %w", err)
	}
	for _, dir := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), folderPrefix), "-")
		number, err := strconv.Atoi(pid)
		if err != nil || !errors.Is(syscall.Kill(number, 0), syscall.ESRCH) {
			continue
		}
		// Another user's folder stays: whoever owns it removes it.
		if err := os.RemoveAll(dir); err != nil && !errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("folders of earlier tests: %w", err)
		}
	}
	return nil
}
