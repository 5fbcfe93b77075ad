package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
)

// The commands that open the database themselves use the prefix of the service.
func TestServe_SchemaPrefix(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 1)
	s := d.processes[0]
	d.env = []string{"ANNALS_SEAL_KEY=", "ANNALS_POSTGRES_SCHEMA_PREFIX=a_"}
	s.args = []string{"--eventstore", "embedded", "--postgres", "embedded"}
	s.start()
	if _, err := s.client().Ingest(t.Context(), client.DataPoint{ID: "a", Content: "Ana likes tea."}); err != nil {
		t.Error(err)
	}
	s.stop()
	with := map[string]string{
		"ANNALS_DATA_DIR": s.dir, "ANNALS_HASH_KEY": datafolder.EncodeSecrets([][]byte{make([]byte, datafolder.SecretBytes)}),
		"ANNALS_API_ADDR": "127.0.0.1:0", "ANNALS_CONSOLE_ADDR": "127.0.0.1:0", "ANNALS_POSTGRES_SCHEMA_PREFIX": "a_",
	}
	run := func(code int, words string, args ...string) {
		t.Helper()
		got := annals(t.Context(), with, "", args...)
		if got.code != code || !strings.Contains(got.stdout+got.stderr, words) {
			t.Errorf("annals %s: %+v, want %q", args[0], got, words)
		}
	}
	run(exitOK, "access", "rebuild", "access")
	run(exitOK, "no seal key is missing", "seal-key", "accept-loss")
	run(exitOK, "backed up to", "backup", filepath.Join(t.TempDir(), "backup"))
	with["ANNALS_POSTGRES_SCHEMA_PREFIX"] = "b_"
	run(exitFailed, "the database has no schema b_ops: is ANNALS_POSTGRES_SCHEMA_PREFIX", "backup", filepath.Join(t.TempDir(), "b"))
	with["ANNALS_POSTGRES_SCHEMA_PREFIX"] = "pg_"
	run(exitUsage, "ANNALS_POSTGRES_SCHEMA_PREFIX must not begin with pg_", "serve")

	var made string
	err := datafolder.Folder{Dir: s.dir}.UseDatabase(t.Context(), "embedded", func(db *pgxpool.Pool) error {
		return db.QueryRow(t.Context(), `select string_agg(nspname, ',' order by nspname) from pg_namespace
			where nspname !~ '^pg_' and nspname not in ('public', 'information_schema')`).Scan(&made)
	})
	if err != nil || !strings.HasPrefix(made, "a_access,a_audit,a_datapoints,") || strings.Count(made, "a_") != strings.Count(made, ",")+1 {
		t.Errorf("schemas %s, %v", made, err)
	}
}
