package datafolder

import (
	"bytes"
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
	"slices"
	"time"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/internal/fsx"
)

// BackupList is the file that completes a backup. A folder without it is not a backup.
const BackupList = "annals-backup.json"

// A backup is a folder with the log, the hash key, the seal keys, the credentials file and how people
// sign in, sealed. The service builds everything else from the log. The list is written last.
const (
	backupLog    = "log"
	backupFormat = 1
)

// backupContent is the content of BackupList. The log has a list of its own, which is one of the files.
type backupContent struct {
	// Format is that of the backup, LogFormat that of the log in it (registry.Format).
	Format    int `json:"format"`
	LogFormat int `json:"logFormat"`

	Created  time.Time `json:"created"`
	Position uint64    `json:"position"`
	// Files are the SHA-256 sums of the files, by name.
	Files map[string]string `json:"files"`
}

// RefusedError means that a backup cannot be made as it is asked for: the person can change that.
type RefusedError struct{ reason string }

// Error implements error.
func (e *RefusedError) Error() string { return e.reason }

func refuse(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// Backup makes backups of a data folder.
type Backup struct {
	// Node is the event store of the data folder, nil for a cluster.
	Node    *node.Node
	Dir     string
	HashKey []byte
	// SealKeys may be empty only if no server runs.
	SealKeys [][]byte
	// Flush appends the recalls that are counted in schema ops to the log. It is nil if no server
	// runs, because a server flushes when it stops.
	Flush func(context.Context)
	// SignIns writes how people sign in, sealed. It is nil if no database is known.
	SignIns func(ctx context.Context, to io.Writer) error
}

// Make fills a folder, which must be empty or absent, and returns the position of the newest event
// in it. A backup that fails leaves nothing in the folder. One that is complete is recorded in the data folder.
func (b Backup) Make(ctx context.Context, dir string) (position uint64, err error) {
	if position, err = b.fill(ctx, dir); err != nil {
		return 0, err
	}
	return position, recordBackup(b.Dir, lastBackup{Created: time.Now().UTC(), Position: position})
}

// fill is Make without the record.
func (b Backup) fill(ctx context.Context, dir string) (position uint64, err error) {
	if b.Node == nil {
		return 0, refuse("the event store is not embedded: back it up with its own tools, and keep the hash key with it")
	}
	if err := emptyFolder(dir); err != nil {
		return 0, refuse("back up into %s: %v", dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clearFolder(dir))
		}
	}()
	if b.Flush != nil {
		b.Flush(ctx)
	}
	if err := b.writeFiles(ctx, dir); err != nil {
		return 0, err
	}
	return writeBackupList(dir)
}

// writeFiles writes everything but the list.
func (b Backup) writeFiles(ctx context.Context, dir string) error {
	// Read the credentials before the log, so that the log knows a key that is replaced meanwhile.
	// The next rotation must find it there.
	credentials, noCredentials := os.ReadFile(filepath.Join(b.Dir, CredentialsFile))
	if err := b.Node.Backup(ctx, filepath.Join(dir, backupLog)); err != nil {
		return err
	}
	hashKey := base64.StdEncoding.EncodeToString(b.HashKey) + "\n"
	if err := fsx.WriteFile(filepath.Join(dir, HashKeyFile), []byte(hashKey)); err != nil {
		return err
	}
	if len(b.SealKeys) > 0 {
		if err := fsx.WriteFile(filepath.Join(dir, SealKeyFile), []byte(EncodeSecrets(b.SealKeys)+"\n")); err != nil {
			return err
		}
	}
	if b.SignIns != nil {
		var sealed bytes.Buffer
		if err := b.SignIns(ctx, &sealed); err != nil {
			return err
		}
		if err := fsx.WriteFile(filepath.Join(dir, SignInsFile), sealed.Bytes()); err != nil {
			return err
		}
	}
	err := noCredentials
	if err == nil {
		err = fsx.WriteFile(filepath.Join(dir, CredentialsFile), credentials)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("back up the credentials: %w", err)
	}
	return nil
}

// writeBackupList writes the list of the files and returns the position of the newest event.
func writeBackupList(dir string) (uint64, error) {
	content := backupContent{
		Format: backupFormat, LogFormat: registry.Format, Created: time.Now().UTC(), Files: map[string]string{},
	}
	var err error
	if content.Position, err = node.BackedUp(filepath.Join(dir, backupLog)); err != nil {
		return 0, err
	}
	for _, name := range append(restoredFiles(), filepath.Join(backupLog, "BACKUP.json")) {
		sum, err := hashOf(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && slices.Contains(restoredFiles()[1:], name) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read the backup: %w", err)
		}
		content.Files[filepath.ToSlash(name)] = sum
	}
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return 0, fmt.Errorf("encode the list of the backup: %w", err)
	}
	return content.Position, fsx.WriteFile(filepath.Join(dir, BackupList), append(text, '\n'))
}

// BackupOffline makes a backup of the data folder while no server runs on it. It locks the folder.
func (f Folder) BackupOffline(ctx context.Context, dir string) (position uint64, err error) {
	if err := f.RefuseBackup(); err != nil {
		return 0, err
	}
	log := filepath.Join(f.Dir, "log")
	if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("data folder %s holds no log (is --data-dir right?)", f.Dir)
	}
	key, err := f.ReadHashKey()
	if err != nil {
		return 0, err
	}
	if key == nil {
		return 0, fmt.Errorf(
			"data folder %s holds no %s: give the key that the server runs with as --hash-key", f.Dir, HashKeyFile)
	}
	n, err := node.Start(ctx, node.Config{Dir: log, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := checkHashKeyOf(ctx, n, key); err != nil {
		return 0, f.ExplainHashKey(err)
	}
	sealing, err := f.KnownSealKeys()
	if err != nil {
		return 0, err
	}
	b := Backup{Node: n, Dir: f.Dir, HashKey: key, SealKeys: sealing}
	if f.hasPostgres() && len(sealing) > 0 {
		b.SignIns = func(ctx context.Context, to io.Writer) error { return f.dumpSignIns(ctx, sealing, to) }
	}
	return b.Make(ctx, dir)
}

// checkHashKeyOf compares a hash key with the log of a node. A backup with a wrong key could not be
// served.
func checkHashKeyOf(ctx context.Context, n *node.Node, key []byte) (err error) {
	quiet := slog.New(slog.DiscardHandler)
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		return err
	}
	store, err := esdb.Open(ConnectTo(n, esdb.Config{Logger: quiet}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return tenancy.CheckHashKey(ctx, engine.NewJournal(store, codec, quiet), key)
}

// ConnectTo completes the configuration of a client of an embedded node.
func ConnectTo(n *node.Node, cfg esdb.Config) esdb.Config {
	c := n.Connection()
	cfg.ConnectionString, cfg.Username, cfg.Password, cfg.RootCAs = c.ConnectionString(), c.Username, c.Password, c.RootCAs
	return cfg
}

// emptyFolder makes a folder that only its owner can read. It fails if the folder holds something.
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

// hashOf returns the SHA-256 sum of a file's content, in hex.
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

// LastBackupFile is the file of the data folder that records the last backup. It is in no backup.
const LastBackupFile = "last-backup.json"

// lastBackup is the content of LastBackupFile.
type lastBackup struct {
	Created  time.Time `json:"created"`
	Position uint64    `json:"position"`
}

// recordBackup records a backup that is complete.
func recordBackup(dataDir string, b lastBackup) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := fsx.WriteFile(filepath.Join(dataDir, LastBackupFile), append(text, '\n')); err != nil {
		return fmt.Errorf("the backup is complete, but not recorded in the data folder: %w", err)
	}
	return nil
}

// LastBackup returns when the last backup of a data folder was made, false if none was.
func LastBackup(dataDir string) (at time.Time, ok bool, err error) {
	text, err := os.ReadFile(filepath.Join(dataDir, LastBackupFile))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, false, nil
	}
	var last lastBackup
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if err != nil {
		return time.Time{}, false, fmt.Errorf("read %s: %w", LastBackupFile, err)
	}
	return last.Created, true, nil
}
