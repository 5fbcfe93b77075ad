package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/eventstore/node"
)

// keptFolder is a data folder as a server leaves it.
func keptFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	n, err := node.Start(t.Context(), node.Config{Dir: filepath.Join(dir, "log")})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := datafolder.NewHashKey(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := (datafolder.Folder{Dir: dir}).NewSealKey(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(
		filepath.Join(dir, datafolder.CredentialsFile), []byte("ANNALS_PROJECT_KEY=k\n"), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestBackup_WithoutServerThenRestore(t *testing.T) {
	data, root := keptFolder(t), t.TempDir()
	backup, restored := filepath.Join(root, "backup"), filepath.Join(root, "restored")
	if got := annals(t.Context(), nil, "", "backup", backup, "--data-dir", data); got.code != exitOK ||
		!strings.Contains(got.stdout, "keys in clear") {
		t.Fatalf("backup: %+v", got)
	}
	if got := annals(t.Context(), nil, "", "backup", backup, "--data-dir", data); got.code != exitFailed ||
		!strings.Contains(got.stderr, "the folder is not empty") {
		t.Errorf("a second backup: %+v", got)
	}
	if got := annals(t.Context(), nil, "", "restore", backup, "--data-dir", restored); got.code != exitOK {
		t.Fatalf("restore: %+v", got)
	}
	for _, name := range []string{datafolder.HashKeyFile, datafolder.SealKeyFile, datafolder.CredentialsFile} {
		want, err := os.ReadFile(filepath.Join(data, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(restored, name))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if info, err := os.Stat(filepath.Join(restored, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if got := annals(t.Context(), nil, "", "restore", backup, "--data-dir", restored); got.code != exitFailed ||
		!strings.Contains(got.stderr, "the folder is not empty") {
		t.Errorf("a second restore: %+v", got)
	}
	n, err := node.Start(t.Context(), node.Config{Dir: filepath.Join(restored, "log")})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func TestBackup_Refusals(t *testing.T) {
	data, root := keptFolder(t), t.TempDir()
	keyless := keptFolder(t)
	if err := os.Remove(filepath.Join(keyless, datafolder.HashKeyFile)); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(root, "good")
	if got := annals(t.Context(), nil, "", "backup", good, "--data-dir", data); got.code != exitOK {
		t.Fatal(got)
	}
	damaged := func(name string, change func(path string) error) string {
		dir := t.TempDir()
		if err := errors.Join(
			os.CopyFS(dir, os.DirFS(good)), change(filepath.Join(dir, filepath.FromSlash(name))),
		); err != nil {
			t.Fatal(err)
		}
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
			got := annals(t.Context(), nil, "", append([]string{tt.first}, strings.Fields(tt.second)...)...)
			if got.code != exitFailed || !strings.Contains(got.stderr, tt.want) || strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("got %+v", got)
			}
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
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"ANNALS_SEAL_KEY": base64.StdEncoding.EncodeToString(sealed)}
	if got := annals(t.Context(), env, "", "backup", backup, "--data-dir", data); got.code != exitOK {
		t.Fatalf("backup: %+v", got)
	}
	if got, err := datafolder.StoredSealKeys(backup); err != nil ||
		datafolder.EncodeSecrets(got) != datafolder.EncodeSecrets(append([][]byte{sealed}, drawn...)) {
		t.Errorf("the backup holds %x, %v", got, err)
	}
}
