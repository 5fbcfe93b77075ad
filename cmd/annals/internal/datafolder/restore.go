package datafolder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/internal/fsx"
)

// Restore fills a data folder, which must be empty or absent, from a backup. It returns the position
// of the newest event. A restore that fails leaves nothing in the data folder.
func Restore(ctx context.Context, backup, dataDir string) (position uint64, err error) {
	content, err := readBackup(backup)
	if err != nil {
		return 0, err
	}
	if err := emptyFolder(dataDir); err != nil {
		return 0, fmt.Errorf("restore into %s: %w", dataDir, err)
	}
	if err := restore(ctx, backup, dataDir, content); err != nil {
		return 0, errors.Join(err, clearFolder(dataDir))
	}
	return content.Position, nil
}

// restore writes the keys before the log, because a server would generate new keys for a log without
// keys, and nothing in that log would match them.
func restore(ctx context.Context, backup, dataDir string, content backupContent) error {
	for _, name := range restoredFiles() {
		if content.Files[name] == "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(backup, name))
		if err != nil {
			return fmt.Errorf("read the backup: %w", err)
		}
		if err := fsx.WriteFile(filepath.Join(dataDir, name), text); err != nil {
			return err
		}
	}
	return node.Restore(ctx, filepath.Join(backup, backupLog), filepath.Join(dataDir, "log"))
}

// readBackup reads the list of a backup and checks the small files. node.Restore checks the log.
func readBackup(dir string) (backupContent, error) {
	var content backupContent
	text, err := os.ReadFile(filepath.Join(dir, BackupList))
	if errors.Is(err, fs.ErrNotExist) {
		return content, fmt.Errorf("%s is no backup, or one that was not finished: it has no %s", dir, BackupList)
	}
	if err != nil {
		return content, fmt.Errorf("read the backup: %w", err)
	}
	if err := json.Unmarshal(text, &content); err != nil || content.Format < 1 || content.Files[HashKeyFile] == "" {
		return content, fmt.Errorf("the backup in %s is damaged: its %s cannot be read", dir, BackupList)
	}
	if content.Format > backupFormat {
		return content, fmt.Errorf(
			"the backup in %s was made by a newer version of this program: restore it with that version", dir)
	}
	if err := registry.CheckFormat(content.LogFormat); err != nil {
		return content, fmt.Errorf("the backup in %s: %w", dir, err)
	}
	for name, want := range content.Files {
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return content, fmt.Errorf("the backup in %s is damaged: its list names the file %q", dir, name)
		}
		got, err := hashOf(filepath.Join(dir, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			return content, fmt.Errorf("the backup in %s is damaged: its file %s is missing", dir, name)
		}
		if err != nil {
			return content, fmt.Errorf("read the backup: %w", err)
		}
		if got != want {
			return content, fmt.Errorf("the backup in %s is damaged: its file %s is not what was backed up", dir, name)
		}
	}
	return content, nil
}
