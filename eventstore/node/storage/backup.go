package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A backup is a folder with the files of the log as of one moment, and a list of them. The list is
// written last: a folder without it is not a backup.
const (
	backupFiles  = "files"
	backupList   = "BACKUP.json"
	backupFormat = 1
	// copyBlock is how many bytes are copied at once.
	copyBlock = 1 << 20
)

// backupContent is the content of backupList.
type backupContent struct {
	// Format is the format of the backup, Log that of the log in it.
	Format int `json:"format"`
	Log    int `json:"logFormat"`
	// Position is the position of the newest event in the backup, 0 if there is none.
	Position uint64       `json:"position"`
	Created  time.Time    `json:"created"`
	Files    []backupFile `json:"files"`
}

type backupFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Backup writes the log as of one moment into a folder: every event that was acknowledged before
// the call, and perhaps later ones, up to one position. Appends, reads and subscriptions continue
// meanwhile. The folder must be empty or missing, and is on the file system of the log; everything
// in it is fsynced when Backup returns nil. On the disk of the log it needs little space at first,
// since unchanging files are shared with the log. A failed backup leaves the folder empty.
func (e *Engine) Backup(ctx context.Context, dir string) (err error) {
	fs := e.store.disk.FS
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("back up into %s: %w", dir, err)
	}
	if err := prepareTarget(fs, dir, "back up into"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeContents(fs, dir))
		}
	}()
	files := fs.PathJoin(dir, backupFiles)
	content := backupContent{Format: backupFormat, Log: newestFormat, Created: time.Now().UTC()}
	if content.Position, err = e.copyReadable(ctx, files); err != nil {
		return err
	}
	if content.Files, err = digestFiles(ctx, fs, files); err != nil {
		return err
	}
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return fmt.Errorf("write the list of the backup: %w", err)
	}
	return writeAtomic(fs, dir, backupList, append(text, '\n'))
}

// copyReadable copies the log into dir and returns the position of the newest event in the copy.
// The engine copies its newest write-ahead log while that is written, so a copy may lack bytes
// before others that it has. Such a copy does not open, or ends too early. Another one replaces it,
// and writes wait meanwhile: moments where files can be linked, for they are copied otherwise.
func (e *Engine) copyReadable(ctx context.Context, dir string) (head uint64, err error) {
	acknowledged := e.Head()
	if err := e.store.checkpoint(ctx, dir, writesGoOn); err != nil {
		return 0, err
	}
	head, err = headOf(e.store.disk.FS, dir)
	if err != nil || head < acknowledged {
		if err := e.store.disk.RemoveAll(dir); err != nil {
			return 0, fmt.Errorf("remove a copy of the log: %w", err)
		}
		if err := e.store.checkpoint(ctx, dir, writesWait); err != nil {
			return 0, err
		}
		head, err = headOf(e.store.disk.FS, dir)
	}
	if err != nil {
		return 0, fmt.Errorf("read the copy of the log: %w", err)
	}
	if head < acknowledged {
		return 0, fmt.Errorf("the copy of the log ends at position %d, and %d was acknowledged", head, acknowledged)
	}
	return head, nil
}

// BackedUp returns the position of the newest event in a backup, as its list records it.
func BackedUp(fs vfs.FS, backup string) (position uint64, err error) {
	content, err := readBackup(fs, backup)
	return content.Position, err
}

// Restore fills a folder, which must be empty or missing, with the log of a backup: the same events
// at the same positions. It compares every file with the list of the backup. It refuses a damaged
// backup and leaves the folder empty.
func Restore(ctx context.Context, fs vfs.FS, backup, dir string) (err error) {
	if backup, err = filepath.Abs(backup); err != nil {
		return fmt.Errorf("restore %s: %w", backup, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("restore into %s: %w", dir, err)
	}
	content, err := readBackup(fs, backup)
	if err != nil {
		return err
	}
	if err := prepareTarget(fs, dir, "restore into"); err != nil {
		return err
	}
	lock, err := pebble.LockDirectory(dir, fs)
	if err != nil {
		return fmt.Errorf("restore into %s: %w", dir, err)
	}
	defer func() {
		err = errors.Join(err, lock.Close())
		if err != nil {
			err = errors.Join(err, removeContents(fs, dir))
		}
	}()
	// Until the folder is complete, opening it fails with an error that names the restore.
	if err := writeFormat(fs, dir, unfinishedRestore); err != nil {
		return err
	}
	for _, f := range content.Files {
		if err := f.restore(ctx, fs, fs.PathJoin(backup, backupFiles), dir); err != nil {
			return err
		}
	}
	if err := syncFolder(fs, dir); err != nil {
		return err
	}
	return writeFormat(fs, dir, fmt.Sprint(content.Log))
}

// writesDuringCopy is what writes do while the log is copied.
type writesDuringCopy bool

const (
	writesGoOn writesDuringCopy = false
	writesWait writesDuringCopy = true
)

// checkpoint copies the files of the log as of one moment. If writes go on, the copy of the newest
// write-ahead log may be unreadable.
func (s *store) checkpoint(ctx context.Context, dir string, writes writesDuringCopy) error {
	if err := s.lockFiles(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { // a goroutine of its own, which a fatal failure may end
		defer s.unlockFiles()
		defer s.failure.recoverPanic("a copy of the log")
		if writes == writesWait {
			s.writes.Lock()
			defer s.writes.Unlock()
		}
		if err := s.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
			done <- fmt.Errorf("copy the log: %w", err)
			return
		}
		done <- nil
	}()
	select {
	case err := <-done:
		return errors.Join(err, ctx.Err())
	case <-s.failure.done:
		return s.failure.get()
	}
}

// headOf returns the position of the newest event in a copy of the log. It proves that the copy can
// be opened.
func headOf(fs vfs.FS, dir string) (head uint64, err error) {
	options := &pebble.Options{FS: fs, ReadOnly: true, FormatMajorVersion: pebble.FormatNewest, Logger: quiet{}}
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = filterPolicy
	}
	db, err := pebble.Open(dir, options)
	if err != nil {
		return 0, err
	}
	s := &store{db: db}
	head, err = s.head()
	if err = errors.Join(err, db.Close()); err != nil {
		return 0, err
	}
	// The lock file of the engine does not belong to the copy.
	return head, fs.Remove(fs.PathJoin(dir, "LOCK"))
}

// quiet discards the messages of an engine on a copy: its failures are returned.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// prepareTarget creates the target folder, or refuses one that is not empty.
func prepareTarget(fs vfs.FS, dir, what string) error {
	names, err := fs.List(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s %s: %w", what, dir, err)
	}
	if len(names) > 0 {
		return fmt.Errorf("%s %s: the folder is not empty", what, dir)
	}
	if err := makeFolder(fs, dir); err != nil {
		return fmt.Errorf("%s %s: %w", what, dir, err)
	}
	return nil
}

// removeContents removes everything in a folder.
func removeContents(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		err = errors.Join(err, fs.RemoveAll(fs.PathJoin(dir, name)))
	}
	return err
}

// digestFiles lists the files of a folder with their sizes and hashes.
func digestFiles(ctx context.Context, fs vfs.FS, dir string) ([]backupFile, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("list the backup: %w", err)
	}
	slices.Sort(names)
	var out []backupFile
	for _, name := range names {
		f := backupFile{Name: name}
		if f.Size, f.SHA256, err = digest(ctx, fs, fs.PathJoin(dir, name), io.Discard); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// digest copies a file to a writer and returns its size and SHA-256.
func digest(ctx context.Context, fs vfs.FS, path string, to io.Writer) (size int64, sum string, err error) {
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	both := io.MultiWriter(h, to)
	buf := make([]byte, copyBlock)
	for {
		if err := ctx.Err(); err != nil {
			return 0, "", err
		}
		n, err := f.Read(buf)
		if n > 0 {
			size += int64(n)
			if _, err := both.Write(buf[:n]); err != nil {
				return 0, "", err
			}
		}
		if errors.Is(err, io.EOF) {
			return size, hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return 0, "", err
		}
	}
}

// readBackup reads the list of a backup.
func readBackup(fs vfs.FS, dir string) (backupContent, error) {
	var c backupContent
	text, err := readSmall(fs, fs.PathJoin(dir, backupList))
	if errors.Is(err, os.ErrNotExist) {
		return c, fmt.Errorf("%s is no backup of a log, or one that was not finished: it has no %s", dir, backupList)
	}
	if err != nil {
		return c, fmt.Errorf("read the backup: %w", err)
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil || c.Format < 1 || len(c.Files) == 0 {
		return c, fmt.Errorf("the backup in %s is damaged: its %s cannot be read", dir, backupList)
	}
	if c.Format > backupFormat || c.Log > newestFormat {
		return c, fmt.Errorf(
			"the backup in %s was made by a newer version of this program: restore it with that version", dir,
		)
	}
	for _, f := range c.Files {
		if f.Name == "" || strings.ContainsAny(f.Name, `/\`) || f.Name == "." || f.Name == ".." {
			return c, fmt.Errorf("the backup in %s is damaged: its %s names the file %q", dir, backupList, f.Name)
		}
	}
	return c, nil
}

// restore copies a file and compares it with its entry in the list.
func (f backupFile) restore(ctx context.Context, fs vfs.FS, from, to string) (err error) {
	out, err := fs.Create(fs.PathJoin(to, f.Name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("restore %s: %w", f.Name, err)
	}
	size, sum, err := digest(ctx, fs, fs.PathJoin(from, f.Name), out)
	if err = errors.Join(err, out.Sync(), out.Close()); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the backup is damaged: its file %s is missing", f.Name)
	}
	if err != nil {
		return fmt.Errorf("restore %s: %w", f.Name, err)
	}
	if size != f.Size || sum != f.SHA256 {
		return fmt.Errorf("the backup is damaged: its file %s is not what was backed up", f.Name)
	}
	return nil
}
