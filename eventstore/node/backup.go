package node

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

// A backup is a folder with the files of the log as of one moment, and a list of them. The list is written last: a folder
// without it is no backup.
const (
	backupFiles  = "files"
	backupList   = "BACKUP.json"
	backupFormat = 1
	// copyBlock is how much is copied at once.
	copyBlock = 1 << 20
)

// backupContent is what backupList says.
type backupContent struct {
	// Format is that of the backup, Log that of the log in it.
	Format int `json:"format"`
	Log    int `json:"logFormat"`
	// Position is that of the newest event in the backup, 0 where there is none.
	Position uint64       `json:"position"`
	Created  time.Time    `json:"created"`
	Files    []backupFile `json:"files"`
}

type backupFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Backup writes the log as of one moment into a folder: every event that was acknowledged before the call, and perhaps
// later ones, up to one position. Appends, reads and subscriptions go on meanwhile. The folder must be empty or not be there, and is on the
// file system of the node; everything in it is fsynced when Backup returns nil. On the disk of the log it takes little
// space at first, since files that never change are shared with the log. A failed backup leaves nothing behind.
func (n *Node) Backup(ctx context.Context, dir string) (err error) {
	fs := n.store.disk.FS
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("back up into %s: %w", dir, err)
	}
	if err := prepareTarget(fs, dir, "back up into"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, empty(fs, dir))
		}
	}()
	files := fs.PathJoin(dir, backupFiles)
	if err := n.store.checkpoint(ctx, files); err != nil {
		return err
	}
	content := backupContent{Format: backupFormat, Log: newestFormat, Created: time.Now().UTC()}
	if content.Position, err = headOf(fs, files); err != nil {
		return fmt.Errorf("the backup cannot be read again: %w", err)
	}
	if content.Files, err = sums(ctx, fs, files); err != nil {
		return err
	}
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return fmt.Errorf("write the list of the backup: %w", err)
	}
	return writeWhole(fs, dir, backupList, append(text, '\n'))
}

// BackedUp reads from the list of a backup the position of its newest event.
func BackedUp(backup string) (position uint64, err error) {
	content, err := readBackup(vfs.Default, backup)
	return content.Position, err
}

// Restore fills a folder, which must be empty or not be there, with the log of a backup: the same events at the same
// positions. Every file is compared with the list of the backup first; a damaged backup is refused, and nothing is left behind.
func Restore(ctx context.Context, backup, dir string) error {
	return restore(ctx, vfs.Default, backup, dir)
}

func restore(ctx context.Context, fs vfs.FS, backup, dir string) (err error) {
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
			err = errors.Join(err, empty(fs, dir))
		}
	}()
	// Whoever opens the folder before it is whole is told so.
	if err := writeFormat(fs, dir, notWhole); err != nil {
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

// checkpoint copies the files of the log as of one moment.
func (s *store) checkpoint(ctx context.Context, dir string) error {
	if err := s.lockFiles(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { // a goroutine of its own, which a fatal failure may end
		defer s.unlockFiles()
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

// headOf reads the position of the newest event in a copy of the log, and so shows that the copy can be opened.
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
	// The file that the engine locks is no part of the copy.
	return head, fs.Remove(fs.PathJoin(dir, "LOCK"))
}

// quiet is for copies, whose failures are returned.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// prepareTarget makes a folder that is to be filled, or refuses one that holds something.
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

// empty removes everything in a folder.
func empty(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		err = errors.Join(err, fs.RemoveAll(fs.PathJoin(dir, name)))
	}
	return err
}

// sums lists the files of a folder.
func sums(ctx context.Context, fs vfs.FS, dir string) ([]backupFile, error) {
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

// digest reads a file to its end, hands its bytes on, and says how many they are and what they hash to.
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
		return c, fmt.Errorf("the backup in %s was made by a newer version of this program: restore it with that version", dir)
	}
	for _, f := range c.Files {
		if f.Name == "" || strings.ContainsAny(f.Name, `/\`) || f.Name == "." || f.Name == ".." {
			return c, fmt.Errorf("the backup in %s is damaged: its %s names the file %q", dir, backupList, f.Name)
		}
	}
	return c, nil
}

// restore copies a file and compares it with what the list says.
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
