package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/internal/operator"
)

// A backup is a folder with the log, the hashing key, the seal keys, and the credentials file where there is one. Everything else is
// built from the log anew. The list is written last: a folder without it is no backup.
const (
	backupLog    = "log"
	backupList   = "annals-backup.json"
	backupFormat = 1
)

// backupContent is what backupList says. The log has a list of its own, which is among the files.
type backupContent struct {
	Format   int       `json:"format"`
	Created  time.Time `json:"created"`
	Position uint64    `json:"position"`
	// Files are the hashes of the files, by name.
	Files map[string]string `json:"files"`
}

// BackupCmd is "annals backup".
type BackupCmd struct {
	Dir     string `arg:"" help:"Folder to back up into; it must be empty or not be there."`
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder; a server may be running on it."`
	HashKey string `name:"hash-key" setting:"ANNALS_HASH_KEY" help:"Key of the hashes, where it was set and no server is running."`
	SealKey string `name:"seal-key" setting:"ANNALS_SEAL_KEY" help:"Keys that API keys are sealed with, where they were set and no server is running."`
}

// Run lets the running server make the backup, and makes it itself where none runs.
func (c *BackupCmd) Run(ctx context.Context, env *Env) error {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("back up into %s: %w", c.Dir, err)
	}
	var done operator.BackedUp
	if server := operator.Dial(c.DataDir); server.Running(ctx) {
		done, err = server.Backup(ctx, dir)
	} else {
		done, err = c.offline(ctx, dir)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Stdout, "backed up to %s, up to position %d; it holds keys in clear: keep it as safe as the data folder\n", done.Dir, done.Position)
	return err
}

func (c *BackupCmd) offline(ctx context.Context, dir string) (_ operator.BackedUp, err error) {
	log := filepath.Join(c.DataDir, "log")
	if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) {
		return operator.BackedUp{}, fmt.Errorf("data folder %s holds no log (is --data-dir right?)", c.DataDir)
	}
	settings := &Settings{DataDir: c.DataDir, HashKey: c.HashKey, SealKey: c.SealKey}
	key, err := readHashKey(settings)
	if err != nil {
		return operator.BackedUp{}, err
	}
	if key == nil {
		return operator.BackedUp{}, fmt.Errorf("data folder %s holds no %s: give the key that the server runs with as --hash-key", c.DataDir, hashKeyFile)
	}
	n, err := node.Start(ctx, node.Config{Dir: log, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return operator.BackedUp{}, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := checkHashKeyOf(ctx, n, key); err != nil {
		return operator.BackedUp{}, explainHashKey(err, settings)
	}
	sealing, err := knownSealKeys(settings)
	if err != nil {
		return operator.BackedUp{}, err
	}
	return backups{node: n, dataDir: c.DataDir, hashKey: key, sealKeys: sealing}.Backup(ctx, dir)
}

// checkHashKeyOf compares a hash key with the log of a node: a backup with another one could not be served.
func checkHashKeyOf(ctx context.Context, n *node.Node, key []byte) (err error) {
	quiet := slog.New(slog.DiscardHandler)
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		return err
	}
	store, err := esdb.Open(connectTo(n, esdb.Config{Logger: quiet}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return commands.CheckHashKey(ctx, commands.NewLog(store, codec, quiet), key)
}

// backups makes backups of a data folder; it implements operator.Backups.
type backups struct {
	node    *node.Node // nil for a cluster
	dataDir string
	hashKey []byte
	// sealKeys are none where no server runs and they are not said.
	sealKeys [][]byte
	// flush appends the recalls counted in schema ops to the log. It is nil if no server runs: a
	// server flushes as it ends.
	flush func(context.Context)
}

// Backup fills a folder. A backup that fails leaves nothing behind.
func (b backups) Backup(ctx context.Context, dir string) (_ operator.BackedUp, err error) {
	if b.node == nil {
		return operator.BackedUp{}, errors.New("the event store is not embedded: back it up with its own tools, and keep the hashing key with it")
	}
	if err := emptyFolder(dir); err != nil {
		return operator.BackedUp{}, fmt.Errorf("back up into %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clearFolder(dir))
		}
	}()
	if b.flush != nil {
		b.flush(ctx)
	}
	// The credentials come before the log: a key that is replaced meanwhile is then one that the log knows, as the next rotation must find.
	credentials, noCredentials := os.ReadFile(filepath.Join(b.dataDir, CredentialsFile))
	if err := b.node.Backup(ctx, filepath.Join(dir, backupLog)); err != nil {
		return operator.BackedUp{}, err
	}
	if err := writeDurably(filepath.Join(dir, hashKeyFile), []byte(base64.StdEncoding.EncodeToString(b.hashKey)+"\n")); err != nil {
		return operator.BackedUp{}, err
	}
	if len(b.sealKeys) > 0 {
		if err := writeDurably(filepath.Join(dir, sealKeyFile), []byte(encodeSecrets(b.sealKeys)+"\n")); err != nil {
			return operator.BackedUp{}, err
		}
	}
	if err = noCredentials; err == nil {
		err = writeDurably(filepath.Join(dir, CredentialsFile), credentials)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return operator.BackedUp{}, fmt.Errorf("back up the credentials: %w", err)
	}
	content := backupContent{Format: backupFormat, Created: time.Now().UTC(), Files: map[string]string{}}
	if content.Position, err = node.BackedUp(filepath.Join(dir, backupLog)); err != nil {
		return operator.BackedUp{}, err
	}
	for _, name := range []string{hashKeyFile, sealKeyFile, CredentialsFile, filepath.Join(backupLog, "BACKUP.json")} {
		sum, err := hashOf(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && (name == CredentialsFile || name == sealKeyFile) {
			continue
		}
		if err != nil {
			return operator.BackedUp{}, fmt.Errorf("read the backup again: %w", err)
		}
		content.Files[filepath.ToSlash(name)] = sum
	}
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return operator.BackedUp{}, fmt.Errorf("write the list of the backup: %w", err)
	}
	return operator.BackedUp{Dir: dir, Position: content.Position}, writeDurably(filepath.Join(dir, backupList), append(text, '\n'))
}

// emptyFolder makes a folder that only its owner reads, or refuses one that holds something.
func emptyFolder(dir string) error {
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(names) > 0 {
		return errors.New("the folder is not empty")
	}
	return os.MkdirAll(dir, 0o700)
}

// clearFolder removes everything in a folder.
func clearFolder(dir string) error {
	names, err := os.ReadDir(dir)
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name.Name())))
	}
	return err
}

// hashOf is the hash of a file's content, in hex.
func hashOf(path string) (_ string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
