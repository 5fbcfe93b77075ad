// Package auditfiles writes and checks the files of the audit log: proofs, and bundles with the tiles of a tree
// (docs/audit-files.md).
package auditfiles

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/audit/proof"
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

const (
	maxCheckpoint = 1 << 20
	maxEntries    = TileWidth * (2 + 1<<16)
	maxLine       = 1 << 16
)

// Tree is what was checked of the tree of a folder.
type Tree struct {
	proof.Checkpoint
	// Tiles counts the tiles, Listed the lines of the list of leaves, and Erased those of events that have left the log.
	Tiles, Listed, Erased int64
}

// checker makes the tree of a folder again from its entries.
type checker struct {
	files fs.FS
	tree  Tree
	since *proof.Checkpoint
	// tiles are the hashes of the last tile of each level.
	tiles [][]byte
	lines *bufio.Scanner
	list  Listed
	err   error
}

// CheckTree checks a folder with a checkpoint and its tiles: it hashes all entries, and compares each tile, the root,
// and the list of leaves where there is one. Since is an earlier checkpoint that the tree must contain, nil for none;
// one of another origin counts for nothing.
func CheckTree(files fs.FS, policy proof.Policy, since *proof.Checkpoint) (Tree, error) {
	c := &checker{files: files, since: since}
	text, err := read(files, CheckpointFile, maxCheckpoint)
	if err != nil {
		return c.tree, err
	}
	if c.tree.Checkpoint, err = policy.Open(text); err != nil {
		return c.tree, err
	}
	if since != nil && since.Origin != c.tree.Origin {
		c.since, since = nil, nil
	}
	if since != nil && since.Size > c.tree.Size {
		return c.tree, fmt.Errorf("the tree has %d leaves, the earlier checkpoint %d", c.tree.Size, since.Size)
	}
	list, err := c.openList()
	if err == nil {
		err = c.check()
	}
	if list != nil {
		err = errors.Join(err, list.Close())
	}
	return c.tree, err
}

func (c *checker) check() error {
	size := c.tree.Size
	made := (&compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}).NewEmptyRange(0)
	for n := int64(0); n*TileWidth < size; n++ {
		bundle, err := c.part(-1, n, int(min(TileWidth, size-n*TileWidth)))
		if err != nil {
			return err
		}
		for i, entry := range bundle {
			if err := c.compareLine(n*TileWidth+int64(i), entry); err != nil {
				return err
			}
			h := tlog.RecordHash(entry)
			if err := errors.Join(made.Append(h[:], c.visit), c.err); err != nil {
				return err
			}
			if c.since != nil && int64(made.End()) == c.since.Size {
				if err := compareRoot(made, c.since); err != nil {
					return err
				}
			}
		}
	}
	for level, hashes := range c.tiles {
		if len(hashes) > 0 {
			if err := c.compareTile(level, (size>>(tileHeight*level))/TileWidth, hashes); err != nil {
				return err
			}
		}
	}
	if c.lines != nil && (c.lines.Scan() || c.lines.Err() != nil) {
		return errors.Join(fmt.Errorf("%s goes on after the leaf %d", LeavesFile, c.list.End-1), c.lines.Err())
	}
	return compareRoot(made, &c.tree.Checkpoint)
}

func compareRoot(made *compact.Range, with *proof.Checkpoint) error {
	root, err := made.GetRootHash(nil)
	if err == nil && made.End() == 0 {
		root = rfc6962.DefaultHasher.EmptyRoot()
	}
	if err == nil && !bytes.Equal(root, with.Root[:]) {
		err = fmt.Errorf("the first %d leaves are not those that the checkpoint was signed over", with.Size)
	}
	return err
}

// visit takes each hash of the tree, and compares the tiles that it ends.
func (c *checker) visit(id compact.NodeID, hash []byte) {
	if id.Level%tileHeight != 0 || c.err != nil {
		return
	}
	level := int(id.Level / tileHeight)
	for len(c.tiles) <= level {
		c.tiles = append(c.tiles, nil)
	}
	c.tiles[level] = append(c.tiles[level], hash...)
	if len(c.tiles[level]) == TileWidth*tlog.HashSize {
		c.err = c.compareTile(level, int64(id.Index)/TileWidth, c.tiles[level])
		c.tiles[level] = c.tiles[level][:0]
	}
}

func (c *checker) compareTile(level int, n int64, hashes []byte) error {
	parts, err := c.part(level, n, len(hashes)/tlog.HashSize)
	if err == nil && !bytes.Equal(bytes.Join(parts, nil), hashes) {
		err = fmt.Errorf("%s has not the hashes of the entries", TilePath(level, n, len(parts)))
	}
	c.tree.Tiles++
	return err
}

// part reads the hashes or entries of a tile. A part of a tile may be gone once the whole tile is there.
func (c *checker) part(level int, n int64, width int) (parts [][]byte, err error) {
	name := TilePath(level, n, width)
	data, err := read(c.files, name, maxEntries)
	exact := true
	if errors.Is(err, fs.ErrNotExist) && width < TileWidth {
		exact = false
		data, err = read(c.files, TilePath(level, n, TileWidth), maxEntries)
	}
	for err == nil && len(parts) < width {
		size := tlog.HashSize
		if level < 0 && len(data) >= 2 {
			size, data = int(binary.BigEndian.Uint16(data)), data[2:]
		}
		if len(data) < size {
			return nil, fmt.Errorf("%s is cut", name)
		}
		parts, data = append(parts, data[:size]), data[size:]
	}
	if err == nil && exact && len(data) > 0 {
		err = fmt.Errorf("%s has more than it should", name)
	}
	return parts, err
}

// openList begins the list of leaves. Only a folder with a policy, which is a bundle, must have one.
func (c *checker) openList() (io.Closer, error) {
	f, err := c.files.Open(LeavesFile)
	if errors.Is(err, fs.ErrNotExist) {
		if _, bundle := fs.Stat(c.files, PolicyFile); bundle != nil {
			return nil, nil //nolint:nilnil // there is no list
		}
	}
	if err != nil {
		return nil, err
	}
	c.lines = bufio.NewScanner(f)
	c.lines.Buffer(nil, maxLine)
	err = c.line(&c.list)
	if l := c.list; err == nil && (l.Format != LeavesFormat || l.First < 0 || l.First > l.End || l.End > c.tree.Size) {
		err = fmt.Errorf("%s is not in the form %s", LeavesFile, LeavesFormat)
	}
	return f, err
}

// line reads the next line of the list.
func (c *checker) line(to any) error {
	if !c.lines.Scan() {
		return errors.Join(fmt.Errorf("%s is cut", LeavesFile), c.lines.Err())
	}
	err := json.Unmarshal(c.lines.Bytes(), to)
	if err == nil {
		if again, encoding := json.Marshal(to); encoding != nil || !bytes.Equal(again, c.lines.Bytes()) {
			err = errors.Join(errors.New("it is not in the one form that it has"), encoding)
		}
	}
	if err != nil {
		return fmt.Errorf("a line of %s: %w", LeavesFile, err)
	}
	return nil
}

// compareLine compares an entry with its line of the list, if it has one.
func (c *checker) compareLine(index int64, entry []byte) error {
	if c.lines == nil || index < c.list.First || index >= c.list.End {
		return nil
	}
	var l Leaf
	if err := c.line(&l); err != nil {
		return err
	}
	record := l.Record
	if l.Leaf != nil {
		sum := sha256.Sum256(l.Leaf.Leaf())
		record = sum[:]
	} else {
		c.tree.Erased++
	}
	if c.tree.Listed++; l.Index != index || l.Leaf != nil && l.Record != nil || !bytes.Equal(record, entry) {
		return fmt.Errorf("%s: leaf %d is not the entry of the tree", LeavesFile, index)
	}
	return nil
}
