// Package auditfiles writes and checks the files of the audit log: proofs, and bundles with the tiles of a tree
// (docs/audit-files.md).
package auditfiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/domain/audit"
)

// The files of a bundle, besides its tiles and proofs.
const (
	PolicyFile     = "policy"
	CheckpointFile = "checkpoint"
	LeavesFile     = "leaves.ndjson"
)

// TileWidth is how many hashes or entries a tile has.
const TileWidth = 1 << tileHeight

const tileHeight = 8

// TilePath is the path of a tile of C2SP tlog-tiles: its level, -1 for entries, its number and its width.
func TilePath(level int, n int64, width int) string {
	path := tlog.Tile{H: tileHeight, L: level, N: n, W: width}.Path()
	path = strings.Replace(path, "tile/8/data/", "tile/entries/", 1)
	return strings.Replace(path, "tile/8/", "tile/", 1)
}

// EachTile calls f for each tile of a tree, those of entries too, in the order of its leaves.
func EachTile(size int64, f func(level int, n int64, width int) error) error {
	for level, of := -1, size; of > 0; level++ {
		for n := int64(0); n*TileWidth < of; n++ {
			if err := f(level, n, int(min(TileWidth, of-n*TileWidth))); err != nil {
				return err
			}
		}
		if level >= 0 {
			of /= TileWidth
		}
	}
	return nil
}

// Listed is the first line of the list of leaves: from which number on and before which another line each is for.
type Listed struct {
	Format string `json:"format"`
	First  int64  `json:"first"`
	End    int64  `json:"end"`
}

// LeavesFormat is the format of the list of leaves.
const LeavesFormat = "annals-leaves/1"

// Leaf is a line of the list of leaves: its fields, or the record of an event that has left the log.
type Leaf struct {
	Index  int64         `json:"index"`
	Leaf   *audit.Fields `json:"leaf,omitempty"`
	Record []byte        `json:"record,omitempty"`
}

// Folder writes files into a folder. The caller closes it.
type Folder struct {
	root *os.Root
	open *os.File
}

// NewFolder makes a folder, which must not exist or be empty.
func NewFolder(dir string) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	list, err := os.ReadDir(dir)
	if err == nil && len(list) > 0 {
		err = fmt.Errorf("folder %s is not empty", dir)
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	return &Folder{root: root}, err
}

// Create ends the file before, and begins the next one.
func (f *Folder) Create(name string) (io.Writer, error) {
	if err := f.end(); err != nil {
		return nil, err
	}
	name = filepath.FromSlash(name)
	if err := f.root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	f.open = file
	return file, err
}

func (f *Folder) end() error {
	if f.open == nil {
		return nil
	}
	err := f.open.Close()
	f.open = nil
	return err
}

// Close ends the last file.
func (f *Folder) Close() error { return errors.Join(f.end(), f.root.Close()) }

// read reads a file of at most so many bytes.
func read(files fs.FS, name string, most int64) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err = errors.Join(err, f.Close()); err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return data, err
}
