package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/annals-project/annals/eventstore/node"
)

// RestoreCmd is "annals restore".
type RestoreCmd struct {
	Backup  string `arg:"" help:"Folder that annals backup filled."`
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder to make; it must be empty or not be there."`
}

// Run fills a data folder. The database and the index are built from the log when the server starts on it.
func (c *RestoreCmd) Run(ctx context.Context, env *Env) error {
	content, err := readBackup(c.Backup)
	if err != nil {
		return err
	}
	if err := emptyFolder(c.DataDir); err != nil {
		return fmt.Errorf("restore into %s: %w", c.DataDir, err)
	}
	if err := c.restore(ctx, content); err != nil {
		return errors.Join(err, clearFolder(c.DataDir))
	}
	_, err = fmt.Fprintf(env.Stdout, "restored to %s, up to position %d; annals serve --data-dir %s builds the rest from the log when it starts\n",
		c.DataDir, content.Position, c.DataDir)
	return err
}

// restore brings the keys before the log: a log whose keys are missing could be served with new ones, that fit nothing in it.
func (c *RestoreCmd) restore(ctx context.Context, content backupContent) error {
	for _, name := range []string{hashKeyFile, sealKeyFile, CredentialsFile} {
		if content.Files[name] == "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(c.Backup, name))
		if err != nil {
			return fmt.Errorf("read the backup: %w", err)
		}
		if err := writeDurably(filepath.Join(c.DataDir, name), text); err != nil {
			return err
		}
	}
	return node.Restore(ctx, filepath.Join(c.Backup, backupLog), filepath.Join(c.DataDir, "log"))
}

// readBackup reads the list of a backup and compares the small files with it; the log is compared as it is restored.
func readBackup(dir string) (backupContent, error) {
	var content backupContent
	text, err := os.ReadFile(filepath.Join(dir, backupList))
	if errors.Is(err, fs.ErrNotExist) {
		return content, fmt.Errorf("%s is no backup, or one that was not finished: it has no %s", dir, backupList)
	}
	if err != nil {
		return content, fmt.Errorf("read the backup: %w", err)
	}
	if err := json.Unmarshal(text, &content); err != nil || content.Format < 1 || content.Files[hashKeyFile] == "" {
		return content, fmt.Errorf("the backup in %s is damaged: its %s cannot be read", dir, backupList)
	}
	if content.Format > backupFormat {
		return content, fmt.Errorf("the backup in %s was made by a newer version of this program: restore it with that version", dir)
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
