package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
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
	runtest.Must(t, err)
	meta := []byte(`{"commandId":"5c1267ae-1120-5133-afad-835f211dfb01","principal":"first start","schema":1}`)
	opened := fmt.Sprintf(`{"logId":"51f2c1a8-2a0f-4e0b-9f5d-0a1f1a3c6c11"%s,"openedAt":"2025-11-05T09:30:00Z"}`, format)
	runtest.Must(t, errorOf(store.Append(t.Context(), stream.Registry, eventstore.NoStream, []eventstore.Proposed{
		{ID: uuid.New(), Type: "registry.log-opened.v1", Data: []byte(opened), Meta: meta},
		{ID: uuid.New(), Type: "registry.organization-created.v9", Data: []byte(`{"name":"Annals"}`), Meta: meta},
	})))
	runtest.Must(t, store.Close())
}

// otherFolder is a data folder of another version.
func otherFolder(t *testing.T, format string) (dir string, stored []eventstore.Recorded) {
	t.Helper()
	dir = t.TempDir()
	runtest.Must(t, errorOf(datafolder.NewHashKey(dir)))
	n, err := node.Start(t.Context(), node.Config{Dir: filepath.Join(dir, "log"), Logger: slog.New(slog.DiscardHandler)})
	runtest.Must(t, err)
	openOther(t, n, format)
	runtest.Must(t, n.Close())
	return dir, eventsIn(t, dir)
}

// eventsIn reads all events of the log in a data folder.
func eventsIn(t *testing.T, dir string) []eventstore.Recorded {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	n, err := node.Start(t.Context(), node.Config{Dir: filepath.Join(dir, "log"), Logger: quiet})
	runtest.Must(t, err)
	store, err := esdb.Open(datafolder.ConnectTo(n, esdb.Config{Logger: quiet}))
	runtest.Must(t, err)
	all := eventstoretest.All(t, store, 0)
	runtest.Must(t, store.Close())
	runtest.Must(t, n.Close())
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
			runtest.Must(t, err)
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
	annals(t.Context(), nil, "", "backup", backup, "--data-dir", data).wants(t, exitOK)
	path := filepath.Join(backup, datafolder.BackupList)
	text, err := os.ReadFile(path)
	runtest.Must(t, err)
	var list map[string]any
	if err := json.Unmarshal(text, &list); err != nil || list["logFormat"] != float64(registry.Format) {
		t.Fatalf("the list is %s, %v", text, err)
	}
	for name, format := range map[string]any{"before 1.0": nil, "newer": 2} {
		if list["logFormat"] = format; format == nil {
			delete(list, "logFormat")
		}
		changed, err := json.Marshal(list)
		runtest.Must(t, err)
		runtest.Must(t, os.WriteFile(path, changed, 0o600))
		restored := filepath.Join(root, "restored")
		refused(t, nil, otherFormats[name].want, "restore", backup, "--data-dir", restored)
		if _, err := os.Stat(restored); !os.IsNotExist(err) {
			t.Errorf("%s: a folder was made: %v", name, err)
		}
	}
}

// keptFolder is a data folder as a server leaves it.
func keptFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	n, err := node.Start(t.Context(), node.Config{Dir: filepath.Join(dir, "log")})
	runtest.Must(t, err)
	runtest.Must(t, n.Close())
	runtest.Must(t, errorOf(datafolder.NewHashKey(dir)))
	runtest.Must(t, errorOf((datafolder.Folder{Dir: dir}).NewSealKey()))
	runtest.Must(t, os.WriteFile(filepath.Join(dir, datafolder.CredentialsFile), []byte("ANNALS_PROJECT_KEY=k\n"), 0o600))
	return dir
}

func TestBackup_WithoutServerThenRestore(t *testing.T) {
	data, root := keptFolder(t), t.TempDir()
	backup, restored := filepath.Join(root, "backup"), filepath.Join(root, "restored")
	annals(t.Context(), nil, "", "backup", backup, "--data-dir", data).wants(t, exitOK, "keys in clear")
	annals(t.Context(), nil, "", "backup", backup, "--data-dir", data).wants(t, exitFailed, "the folder is not empty")
	annals(t.Context(), nil, "", "restore", backup, "--data-dir", restored).wants(t, exitOK)
	for _, name := range []string{datafolder.HashKeyFile, datafolder.SealKeyFile, datafolder.CredentialsFile} {
		want, err := os.ReadFile(filepath.Join(data, name))
		runtest.Must(t, err)
		got, err := os.ReadFile(filepath.Join(restored, name))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if info, err := os.Stat(filepath.Join(restored, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	annals(t.Context(), nil, "", "restore", backup, "--data-dir", restored).
		wants(t, exitFailed, "the folder is not empty")
	n, err := node.Start(t.Context(), node.Config{Dir: filepath.Join(restored, "log")})
	runtest.Must(t, err)
	runtest.Must(t, n.Close())
}

func TestBackup_Refusals(t *testing.T) {
	data, root := keptFolder(t), t.TempDir()
	keyless := keptFolder(t)
	runtest.Must(t, os.Remove(filepath.Join(keyless, datafolder.HashKeyFile)))
	good := filepath.Join(root, "good")
	annals(t.Context(), nil, "", "backup", good, "--data-dir", data).wants(t, exitOK)
	damaged := func(name string, change func(path string) error) string {
		dir := t.TempDir()
		runtest.Must(t, errors.Join(os.CopyFS(dir, os.DirFS(good)), change(filepath.Join(dir, filepath.FromSlash(name)))))
		return dir
	}
	another := func(path string) error { return os.WriteFile(path, []byte("AAAA\n"), 0o600) }
	tests := []struct{ name, want, first, second string }{
		{"no log", "holds no log", "backup", filepath.Join(root, "a") + " --data-dir " + t.TempDir()},
		{"no key", "give the key that the server runs with", "backup", filepath.Join(root, "b") + " --data-dir " + keyless},
		{"no backup", "is no backup, or one that was not finished", "restore", data + " --data-dir " + filepath.Join(root, "c")},
		{"another key", "its file hash.key is not what was backed up", "restore", damaged("hash.key", another) + " --data-dir " + filepath.Join(root, "d")},
		{"no key in it", "its file hash.key is missing", "restore", damaged("hash.key", os.Remove) + " --data-dir " + filepath.Join(root, "e")},
		{"another log", "its file log/BACKUP.json is not what was backed up", "restore", damaged("log/BACKUP.json", another) + " --data-dir " + filepath.Join(root, "f")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			annals(t.Context(), nil, "", append([]string{tt.first}, strings.Fields(tt.second)...)...).
				fails(t, exitFailed, tt.want)
		})
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		if names, err := os.ReadDir(filepath.Join(root, name)); len(names) > 0 {
			t.Errorf("%s: leftovers: %v, %v", name, names, err)
		}
	}
}

// A seal key that is set is in the backup before the one of the data folder.
func TestBackup_SealKeysThatAreSet(t *testing.T) {
	data, backup := keptFolder(t), filepath.Join(t.TempDir(), "backup")
	sealed := bytes.Repeat([]byte{3}, datafolder.SecretBytes)
	drawn, err := datafolder.StoredSealKeys(data)
	runtest.Must(t, err)
	env := map[string]string{"ANNALS_SEAL_KEY": base64.StdEncoding.EncodeToString(sealed)}
	annals(t.Context(), env, "", "backup", backup, "--data-dir", data).wants(t, exitOK)
	if got, err := datafolder.StoredSealKeys(backup); err != nil ||
		datafolder.EncodeSecrets(got) != datafolder.EncodeSecrets(append([][]byte{sealed}, drawn...)) {
		t.Errorf("the backup holds %x, %v", got, err)
	}
}

// openedFolder returns a data folder whose log was opened with its hash key.
func openedFolder(t *testing.T) (dir string, key []byte) {
	t.Helper()
	must := func(err error) { t.Helper(); runtest.Must(t, err) }
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	key, err := datafolder.NewHashKey(dir)
	must(err)
	n, err := node.Start(t.Context(), node.Config{Dir: filepath.Join(dir, "log"), Logger: quiet})
	must(err)
	store, err := esdb.Open(datafolder.ConnectTo(n, esdb.Config{Logger: quiet}))
	must(err)
	codec := eventstoretest.Codec(t)
	must(tenancy.Bootstrap(
		t.Context(), engine.NewJournal(store, codec, quiet),
		tenancy.FirstStart{Organization: "Annals", HashKey: key, At: time.Now().UTC()},
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
			runtest.Must(t, err)
			t.Cleanup(func() { runtest.Must(t, os.WriteFile(path, kept, 0o600)) })
			runtest.Must(t, os.Remove(path))
			if c.file != "" {
				runtest.Must(t, os.WriteFile(path, []byte(c.file+"\n"), 0o600))
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
	annals(t.Context(), env, "", "rebuild", "access").wants(t, exitOK)
}
