package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// BouncerVariable names the environment variable that makes a machine without PgBouncer a failure: "required".
const BouncerVariable = "ANNALS_TEST_PGBOUNCER"

// The modes of PgBouncer.
const (
	SessionMode     = "session"
	TransactionMode = "transaction"
	StatementMode   = "statement"
)

// Bouncer is a PgBouncer in front of one database.
type Bouncer struct {
	t testing.TB
	// settings is its file; console is the address of its own database, for commands.
	settings, console string
	url               string
	program           *exec.Cmd
	database          string
	port              string
}

// NewBouncer starts a PgBouncer in a mode in front of the database of an address, with a few sessions. The end of the
// test stops it. Without the program the test is skipped.
func NewBouncer(t testing.TB, address, mode string) *Bouncer {
	t.Helper()
	program := findBouncer(t)
	to, err := pgconn.ParseConfig(address)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	port, _ := forward(t, to)
	// The program does not run as root, and reads its settings as another user.
	folder, err := os.MkdirTemp("", "annals-pgbouncer-") //nolint:usetesting // only its own user opens that of the test
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	own := freePort(t)
	b := &Bouncer{
		t: t, settings: filepath.Join(folder, "pgbouncer.ini"), port: own,
		console:  "host=127.0.0.1 port=" + own + " dbname=pgbouncer user=test sslmode=disable",
		url:      "postgres://" + url.PathEscape(to.User) + "@127.0.0.1:" + own + "/" + to.Database + "?sslmode=disable",
		database: fmt.Sprintf("%s = host=127.0.0.1 port=%s dbname=%s user=%s", to.Database, port, to.Database, to.User),
	}
	if to.Password != "" {
		b.database += " password=" + to.Password
	}
	b.write(mode)
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // another user reads it
		t.Fatalf("pgtest: %v", err)
	}
	b.program = exec.Command(program, b.settings)
	b.program.Stderr = t.Output()
	if os.Geteuid() == 0 {
		b.program.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	if err := b.program.Start(); err != nil {
		t.Fatalf("pgtest: start pgbouncer: %v", err)
	}
	t.Cleanup(b.stop)
	b.await(mode)
	return b
}

// nobody is a user without rights, which each system has.
const nobody = 65534

// URL is the address of the database through the pooler.
func (b *Bouncer) URL() string { return b.url }

// SetMode changes the mode under its clients, as RELOAD does.
func (b *Bouncer) SetMode(mode string) {
	b.t.Helper()
	b.write(mode)
	b.signal(syscall.SIGHUP)
	b.await(mode)
}

// Freeze stops the pooler in the middle of whatever it does, Thaw lets it go on.
func (b *Bouncer) Freeze() { b.signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (b *Bouncer) Thaw() { b.signal(syscall.SIGCONT) }

func (b *Bouncer) signal(s syscall.Signal) {
	b.t.Helper()
	if err := b.program.Process.Signal(s); err != nil {
		b.t.Fatalf("pgtest: signal pgbouncer: %v", err)
	}
}

func (b *Bouncer) write(mode string) {
	b.t.Helper()
	text := "[databases]\n" + b.database + "\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = " + b.port +
		"\nunix_socket_dir =\nauth_type = any\npool_mode = " + mode +
		"\ndefault_pool_size = 60\nmax_client_conn = 200\nserver_idle_timeout = 3\nlog_connections = 0\nlog_disconnections = 0\n"
	if err := os.WriteFile(b.settings, []byte(text), 0o644); err != nil { //nolint:gosec // another user reads it
		b.t.Fatalf("pgtest: %v", err)
	}
}

// await waits until the pooler answers and has a mode.
func (b *Bouncer) await(mode string) {
	b.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		is, err := b.mode()
		if err == nil && is == mode {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("pgtest: pgbouncer is in mode %q, want %q: %v", is, mode, err)
		}
	}
}

func (b *Bouncer) mode() (string, error) {
	rows, err := b.command("SHOW CONFIG")
	if err != nil {
		return "", err
	}
	for _, row := range rows {
		if len(row) > 1 && string(row[0]) == "pool_mode" {
			return string(row[1]), nil
		}
	}
	return "", errors.New("it shows no mode")
}

// command runs a command of its console.
func (b *Bouncer) command(sql string) (rows [][][]byte, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.Context()), time.Minute)
	defer cancel()
	conn, err := pgconn.Connect(ctx, b.console)
	if err != nil {
		return nil, err
	}
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return nil, fmt.Errorf("%s: %w", sql, err)
	}
	for _, r := range results {
		rows = append(rows, r.Rows...)
	}
	return rows, nil
}

func (b *Bouncer) stop() {
	if err := b.program.Process.Signal(syscall.SIGTERM); err != nil {
		b.t.Errorf("pgtest: stop pgbouncer: %v", err)
	}
	_ = b.program.Wait() // it ends by the signal
}

func findBouncer(t testing.TB) string {
	t.Helper()
	for _, path := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer"} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	if os.Getenv(BouncerVariable) == "required" {
		t.Fatal("pgtest: this machine has no pgbouncer")
	}
	t.Skip("this machine has no pgbouncer (apt-get install pgbouncer)")
	return ""
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return port
}

// Forwarded returns an address that leads to the database of another one, until cut is called.
func Forwarded(t testing.TB, address string) (forwarded string, cut func()) {
	t.Helper()
	to, err := pgconn.ParseConfig(address)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	port, cut := forward(t, to)
	through := url.URL{
		Scheme: "postgres", User: url.UserPassword(to.User, to.Password), Host: "127.0.0.1:" + port, Path: to.Database,
		RawQuery: "sslmode=disable",
	}
	return through.String(), cut
}

// forward makes a server, which may listen on a socket that only its user opens, reachable at a port until cut is
// called.
func forward(t testing.TB, to *pgconn.Config) (port string, cut func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var open sync.WaitGroup
	cut = func() { cancel(); _ = l.Close() }
	t.Cleanup(func() { cut(); open.Wait() })
	open.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { carry(ctx, client, to) })
		}
	})
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, cut
}

// carry copies between a client and the server until either ends.
func carry(ctx context.Context, client net.Conn, to *pgconn.Config) {
	defer func() { _ = client.Close() }()
	network, at := pgconn.NetworkAddress(to.Host, to.Port)
	server, err := new(net.Dialer).DialContext(ctx, network, at)
	if err != nil {
		return // the client sees its connection end
	}
	end := func() { _ = client.Close(); _ = server.Close() }
	defer context.AfterFunc(ctx, end)()
	var copying sync.WaitGroup
	copying.Go(func() { defer end(); _, _ = io.Copy(server, client) })
	copying.Go(func() { defer end(); _, _ = io.Copy(client, server) })
	copying.Wait()
}

// With returns an address with one more setting.
func With(address, setting string) string {
	if strings.Contains(address, "?") {
		return address + "&" + setting
	}
	return address + "?" + setting
}
