package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/runtest"
)

// Replicated is a primary with a streaming replica, both servers of the test.
type Replicated struct {
	t testing.TB
	// Primary and Replica are addresses of the same database, as their superuser.
	Primary, Replica string
	folder           string // of the replica
	replica          *pg.Server
}

// settingsOfReplicated let a server stream to another. Both have the same, as Postgres demands.
var settingsOfReplicated = map[string]string{
	"fsync": "off", "full_page_writes": "off", "max_connections": "200", "wal_level": "replica", "max_wal_senders": "4",
	// A paused replica may not end the reads of the test, nor the primary wait for it.
	"hot_standby": "on", "max_standby_streaming_delay": "-1", "wal_keep_size": "256MB",
}

// NewReplicated starts a primary and its replica with the machine's programs. The end of the test
// stops them.
func NewReplicated(t testing.TB) *Replicated {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	defer cancel()
	primary, err := pg.Start(ctx, pg.Config{DataDir: serverFolder(t), Settings: settingsOfReplicated})
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { closeServer(t, primary) })
	r := &Replicated{t: t, Primary: primary.URL(), folder: serverFolder(t)}
	conn, err := pgx.Connect(ctx, r.Primary)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	var programs string
	err = conn.QueryRow(ctx, `select setting from pg_config where name = 'BINDIR'`).Scan(&programs)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	if err := copyCluster(ctx, programs, r.Primary, filepath.Join(r.folder, "postgres", "data")); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	r.Primary = withPrefix(r.Primary)
	r.Start()
	t.Cleanup(r.Stop)
	return r
}

// serverFolder is the data folder of a server of the test, in memory if there is room.
func serverFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(runtest.MemoryFolder(), "annals-replicated-") //nolint:usetesting // that one is on a disk
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return dir
}

// copyCluster copies a running server to a folder, whose server will follow it.
func copyCluster(ctx context.Context, programs, url, folder string) error {
	if err := os.MkdirAll(filepath.Dir(folder), 0o700); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "pg_basebackup"), "--pgdata="+folder, "--dbname="+url,
		"--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--wal-method=stream")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, output)
	}
	return nil
}

// Start starts the replica unless it runs.
func (r *Replicated) Start() {
	r.t.Helper()
	if r.replica != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), 5*time.Minute)
	defer cancel()
	var err error
	if r.replica, err = pg.Start(ctx, pg.Config{DataDir: r.folder, Settings: settingsOfReplicated}); err != nil {
		r.t.Fatalf("pgtest: %v", err)
	}
	r.Replica = withPrefix(r.replica.URL())
}

// Stop stops the replica if it runs.
func (r *Replicated) Stop() {
	r.t.Helper()
	if r.replica == nil {
		return
	}
	closeServer(r.t, r.replica)
	r.replica = nil
}

// Pause makes the replica apply nothing, Resume ends that. OnReplica runs any statement there.
func (r *Replicated) Pause() {
	r.t.Helper()
	r.OnReplica(`select pg_wal_replay_pause()`)
	for deadline := time.Now().Add(5 * time.Minute); ; {
		var state string
		r.query(r.Replica, `select pg_get_wal_replay_pause_state()`, &state)
		if state == "paused" {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("pgtest: replay is %s", state)
		}
	}
}

// Resume makes the replica apply again what it receives.
func (r *Replicated) Resume() {
	r.t.Helper()
	r.OnReplica(`select pg_wal_replay_resume()`)
}

// OnReplica runs a statement on the replica.
func (r *Replicated) OnReplica(sql string) {
	r.t.Helper()
	r.query(r.Replica, sql)
}

// CatchUp waits until the replica has replayed what the primary had written before.
func (r *Replicated) CatchUp() {
	r.t.Helper()
	var written string
	r.query(r.Primary, `select pg_current_wal_insert_lsn()::text`, &written)
	for deadline := time.Now().Add(5 * time.Minute); ; {
		var passed bool
		r.query(r.Replica, `select pg_last_wal_replay_lsn() >= '`+written+`'::pg_lsn`, &passed)
		if passed {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("pgtest: the replica does not reach %s", written)
		}
	}
}

// query runs a statement on a new connection and scans its row into into, if there are any.
func (r *Replicated) query(url, sql string, into ...any) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), 5*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		r.t.Fatalf("pgtest: %v", err)
	}
	if len(into) == 0 {
		_, err = conn.Exec(ctx, sql)
	} else {
		err = conn.QueryRow(ctx, sql).Scan(into...)
	}
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		r.t.Fatalf("pgtest: %s: %v", sql, err)
	}
}

func closeServer(t testing.TB, s *pg.Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("pgtest: %v", err)
	}
}
