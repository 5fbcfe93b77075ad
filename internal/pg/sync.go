package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// syncers is how many files are fsynced at once. A disk writes many in the time of one, while initdb
// would fsync its thousand files one after the other.
const syncers = 32

// syncTree writes all files and folders below a folder to the disk.
func syncTree(ctx context.Context, folder string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(syncers)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if entry.IsDir() || entry.Type().IsRegular() {
			g.Go(func() error { return syncPath(path) })
		}
		return nil
	})
	return errors.Join(g.Wait(), err)
}

// syncPath writes a file, or the entries of a folder, to the disk.
func syncPath(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("write to disk: %w", err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("write to disk: %w", err)
	}
	return nil
}
