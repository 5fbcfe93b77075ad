package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/pg/pgtest"
)

// otherFormats are the first events of logs of other versions, and what refuses them.
var otherFormats = map[string]struct{ format, want string }{
	"before 1.0": {"", "a version before 1.0 wrote the log, and this version cannot read it: export each project with the version " +
		"that wrote it, and import the files into a new log; that carries the live texts with their data, while keys, " +
		"audiences, traits, webhooks and caps must be made again"},
	"newer": {`,"format":2`, "a newer version of this program wrote the log: its format is 2 and this version reads 1; " +
		"use the newer version"},
}

// openOther appends what another version began its log with: a second event has a name that this version does not know.
func openOther(t *testing.T, n *node.Node, format string) {
	t.Helper()
	store, err := esdb.Open(datafolder.ConnectTo(n, esdb.Config{Logger: slog.New(slog.DiscardHandler)}))
	if err != nil {
		t.Fatal(err)
	}
	meta := []byte(`{"commandId":"5c1267ae-1120-5133-afad-835f211dfb01","principal":"first start","schema":1}`)
	opened := fmt.Sprintf(`{"logId":"51f2c1a8-2a0f-4e0b-9f5d-0a1f1a3c6c11"%s,"openedAt":"2025-11-05T09:30:00Z"}`, format)
	if _, err := store.Append(t.Context(), stream.Registry, eventstore.NoStream, []eventstore.Proposed{
		{ID: uuid.New(), Type: "registry.log-opened.v1", Data: []byte(opened), Meta: meta},
		{ID: uuid.New(), Type: "registry.organization-created.v9", Data: []byte(`{"name":"Annals"}`), Meta: meta},
	}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

// otherFolder is a data folder of another version.
func otherFolder(t *testing.T, format string) (dir string, stored []eventstore.Recorded) {
	t.Helper()
	dir = t.TempDir()
	if _, err := datafolder.NewHashKey(dir); err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(t.Context(), node.Config{Dir: filepath.Join(dir, "log"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	openOther(t, n, format)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, eventsIn(t, dir)
}

// eventsIn reads all events of the log in a data folder.
func eventsIn(t *testing.T, dir string) []eventstore.Recorded {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	n, err := node.Start(t.Context(), node.Config{Dir: filepath.Join(dir, "log"), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	store, err := esdb.Open(datafolder.ConnectTo(n, esdb.Config{Logger: quiet}))
	if err != nil {
		t.Fatal(err)
	}
	all := eventstoretest.All(t, store, 0)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// refused runs a command and checks that it fails with one line.
func refused(t *testing.T, env map[string]string, want string, args ...string) {
	t.Helper()
	got := annals(t.Context(), env, "", args...)
	if got.code != exitFailed || !strings.HasSuffix(got.stderr, want+"\n") || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("annals %s: %+v, want %q", args[0], got, want)
	}
}

// Every command that opens a log refuses one of another format, before anything is read from it or written.
func TestFormat_FolderOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for name, c := range otherFormats {
		t.Run(name, func(t *testing.T) {
			dir, stored := otherFolder(t, c.format)
			backup := filepath.Join(t.TempDir(), "backup")
			env := map[string]string{
				"ANNALS_DATA_DIR": dir, "ANNALS_API_ADDR": "127.0.0.1:0", "ANNALS_CONSOLE_ADDR": "127.0.0.1:0",
				"ANNALS_LOG_LEVEL": "error",
			}
			for _, args := range [][]string{{"serve"}, {"rebuild", "access"}, {"backup", backup}} {
				refused(t, env, c.want, args...)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			if !slices.Equal(names, []string{datafolder.HashKeyFile, "log"}) {
				t.Errorf("the folder holds %v", names)
			}
			if diff := cmp.Diff(stored, eventsIn(t, dir)); diff != "" {
				t.Errorf("the log was changed: %s", diff)
			}
			if _, err := os.Stat(backup); !os.IsNotExist(err) {
				t.Errorf("a backup was begun: %v", err)
			}
		})
	}
}

func TestFormat_ClusterOfAnotherVersion(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	for name, c := range otherFormats {
		t.Run(name, func(t *testing.T) {
			n := nodetest.Start(t, node.Config{Insecure: true})
			openOther(t, n, c.format)
			dir := t.TempDir()
			env := map[string]string{
				"ANNALS_DATA_DIR": dir, "ANNALS_POSTGRES": database, "ANNALS_EVENTSTORE": n.Connection().ConnectionString(),
				"ANNALS_API_ADDR": "127.0.0.1:0", "ANNALS_CONSOLE_ADDR": "127.0.0.1:0", "ANNALS_LOG_LEVEL": "error",
			}
			for _, args := range [][]string{{"serve"}, {"rebuild", "access"}, {"org", "create", "Acme"}} {
				refused(t, env, c.want, args...)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("the data folder holds %v, %v", left, err)
			}
		})
	}
}

// The list of a backup names the format of the log in it.
func TestFormat_BackupOfAnotherVersion(t *testing.T) {
	t.Parallel()
	data, root := keptFolder(t), t.TempDir()
	backup := filepath.Join(root, "backup")
	if got := annals(t.Context(), nil, "", "backup", backup, "--data-dir", data); got.code != exitOK {
		t.Fatalf("backup: %+v", got)
	}
	path := filepath.Join(backup, datafolder.BackupList)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list map[string]any
	if err := json.Unmarshal(text, &list); err != nil || list["logFormat"] != float64(registry.Format) {
		t.Fatalf("the list is %s, %v", text, err)
	}
	for name, format := range map[string]any{"before 1.0": nil, "newer": 2} {
		if list["logFormat"] = format; format == nil {
			delete(list, "logFormat")
		}
		changed, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		restored := filepath.Join(root, "restored")
		refused(t, nil, otherFormats[name].want, "restore", backup, "--data-dir", restored)
		if _, err := os.Stat(restored); !os.IsNotExist(err) {
			t.Errorf("%s: a folder was made: %v", name, err)
		}
	}
}
