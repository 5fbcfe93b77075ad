package main

import (
	"encoding/base64"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/internal/pg/pgtest"
)

// openedFolder returns a data folder whose log was opened with its hash key.
func openedFolder(t *testing.T) (dir string, key []byte) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	key, err := datafolder.NewHashKey(dir)
	must(err)
	n, err := node.Start(t.Context(), node.Config{Dir: filepath.Join(dir, "log"), Logger: quiet})
	must(err)
	store, err := esdb.Open(datafolder.ConnectTo(n, esdb.Config{Logger: quiet}))
	must(err)
	codec := eventstoretest.Codec(t)
	must(commands.Bootstrap(
		t.Context(), commands.NewJournal(store, codec, quiet),
		commands.FirstStart{Organization: "Annals", HashKey: key, At: time.Now().UTC()},
	))
	must(store.Close())
	must(n.Close())
	return dir, key
}

// Every command opens a log only with the hash key that it was written with. A refusal changes nothing.
func TestHashKey_MissingOrWrong(t *testing.T) {
	t.Parallel()
	dir, _ := openedFolder(t)
	path, database := filepath.Join(dir, datafolder.HashKeyFile), pgtest.URL(t)
	another := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", datafolder.SecretBytes)))
	for _, c := range []struct {
		name string
		file string // what the file holds instead, "" for none
		set  string
		want string
	}{
		{"missing", "", "", "none is known: restore " + path + " from the backup, or set ANNALS_HASH_KEY"},
		{"wrong file", another, "", "not the one that the log is written with: restore " + path + " from the backup, or set ANNALS_HASH_KEY to that one"},
		{"wrong setting", "", another, "not the one that the log is written with: set ANNALS_HASH_KEY to that one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kept, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.WriteFile(path, kept, 0o600); err != nil {
					t.Error(err)
				}
			})
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if c.file != "" {
				if err := os.WriteFile(path, []byte(c.file+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			env := map[string]string{
				"ANNALS_DATA_DIR": dir, "ANNALS_POSTGRES": database, "ANNALS_HASH_KEY": c.set, "ANNALS_API_ADDR": "127.0.0.1:0",
				"ANNALS_CONSOLE_ADDR": "127.0.0.1:0",
			}
			backup := filepath.Join(t.TempDir(), "backup")
			for _, args := range [][]string{{"serve"}, {"rebuild", "access"}, {"backup", backup}} {
				want := c.want
				if c.name == "missing" && args[0] == "backup" {
					want = "give the key that the server runs with as --hash-key"
				}
				env["ANNALS_LOG_LEVEL"] = "warn" // the reason alone, without the first line of the log
				got := annals(t.Context(), env, "", args...)
				if got.code != exitFailed || !strings.Contains(got.stderr, want) || strings.Count("\n"+got.stderr, "\nannals: ") != 1 {
					t.Errorf("annals %s: %+v, want %q", args[0], got, want)
				}
			}
			if text, err := os.ReadFile(path); c.file == "" && !os.IsNotExist(err) {
				t.Errorf("%s was made: %q, %v", path, text, err)
			}
			if _, err := os.Stat(filepath.Join(backup, datafolder.BackupList)); !os.IsNotExist(err) {
				t.Errorf("a backup was made: %v", err)
			}
		})
	}
	env := map[string]string{"ANNALS_DATA_DIR": dir, "ANNALS_POSTGRES": database}
	if got := annals(t.Context(), env, "", "rebuild", "access"); got.code != exitOK {
		t.Errorf("with the key of the log: %+v", got)
	}
}
