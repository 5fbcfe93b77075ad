package bleve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/util"
	zap "github.com/blevesearch/zapx/v17"
	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

// format is how a generation keeps documents. Raise it with every change of the mapping or of the documents: a
// generation of another format is dropped.
const format = 9

// generation is one build of the index. Its name, which is that of its folder, begins with its format
// and the version of its analysis.
type generation struct {
	name     string
	analysis int
}

// target is the name of the generation outside this package.
func (g generation) target() string { return "bleve:" + g.name }

func newGeneration(analysis int) generation {
	return generation{name: fmt.Sprintf("%d.%d-%s", format, analysis, uuid.NewString()), analysis: analysis}
}

// parseGeneration parses the name of a generation.
func parseGeneration(name string) (generation, error) {
	versions, id, _ := strings.Cut(name, "-")
	of, analysis, _ := strings.Cut(versions, ".")
	if n, err := strconv.Atoi(of); err == nil && n != format {
		return generation{}, fmt.Errorf("generation %q is of another format", name)
	}
	g := generation{name: name}
	var err error
	if g.analysis, err = strconv.Atoi(analysis); err == nil {
		_, err = uuid.Parse(id)
	}
	if err != nil || of != strconv.Itoa(format) {
		return generation{}, fmt.Errorf("generation %q is unreadable", name)
	}
	return g, nil
}

// currentFile names the generation in use, nextFile the shadow.
const (
	currentFile = "CURRENT"
	nextFile    = "NEXT"
)

// named returns the generation that a file names, or why it cannot be used.
func (x *Index) named(file string) (generation, error) {
	data, err := os.ReadFile(filepath.Join(x.folder, file))
	if errors.Is(err, os.ErrNotExist) {
		return generation{}, errNoGeneration
	}
	if err != nil {
		return generation{}, err
	}
	g, err := parseGeneration(strings.TrimSpace(string(data)))
	if err != nil {
		return generation{}, err
	}
	if _, err := os.ReadDir(filepath.Join(x.folder, g.name)); err != nil {
		return generation{}, err
	}
	return g, nil
}

// begin creates an empty generation and makes a file name it.
func (x *Index) begin(file string) (generation, error) {
	g := newGeneration(x.options.Analysis)
	if err := os.Mkdir(filepath.Join(x.folder, g.name), 0o700); err != nil {
		return generation{}, err
	}
	if err := writeDurably(filepath.Join(x.folder, file), []byte(g.name+"\n")); err != nil {
		return generation{}, err
	}
	return g, nil
}

// dropOtherGenerations removes all generations but the current one and a shadow that may still be
// promoted.
func (x *Index) dropOtherGenerations() error {
	next, err := x.named(nextFile)
	if err != nil {
		next.name = nextFile // there is none, or it is unusable and removed
	}
	entries, err := os.ReadDir(x.folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != currentFile && name != x.generation.name && name != next.name &&
			(name != nextFile || next.name == nextFile) {
			if err := os.RemoveAll(filepath.Join(x.folder, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeDurably replaces a file: after a crash either the old or the new content is there.
func writeDurably(path string, data []byte) error {
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolderOf(path string) error { return syncFolder(filepath.Dir(path)) }

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// errNoGeneration reports a folder without an index, as at the first start.
var errNoGeneration = errors.New("no generation")

// If Bleve cannot read a snapshot, it opens an older one, or an empty index, without an error:
// documents would be missing unnoticed. So read the newest snapshot first, and compare it with what
// was opened.

// errNoSnapshot reports an index without a snapshot: each has one from its creation.
var errNoSnapshot = errors.New("the index has no snapshot")

// stampKey names a random value that each batch writes into the snapshot.
var stampKey = []byte("stamp")

func stamp() []byte {
	id := uuid.New()
	return id[:]
}

// firstSnapshot makes a new index write a snapshot.
func firstSnapshot(index bleve.Index) error { return index.SetInternal(stampKey, stamp()) }

// openFiles opens a slot and checks that it is complete.
func openFiles(path string) (bleve.Index, *moves, error) {
	moves, err := openMoves(path + movesSuffix)
	if err != nil {
		return nil, nil, err
	}
	_, want, err := newest(filepath.Join(path, "store"))
	if err != nil {
		return nil, nil, err
	}
	index, err := bleve.Open(path)
	if err != nil {
		return nil, nil, err
	}
	// Segments may be merged by now; the stamp is unchanged.
	got, err := index.GetInternal(stampKey)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s: the snapshot that was opened is not the newest", path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, index.Close())
	}
	return index, moves, nil
}

// newest returns the files and the stamp of the newest snapshot of an index that is not open. It
// fails if a file cannot be opened.
func newest(store string) (files []string, stamp []byte, err error) {
	root := filepath.Join(store, "root.bolt")
	if info, err := os.Stat(root); err != nil {
		return nil, nil, err
	} else if info.Size() == 0 {
		return nil, nil, errNoSnapshot
	}
	db, err := util.OpenBolt(root, 0o600, nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, db.DB.Close()) }()
	err = db.View(func(tx *util.BoltTxImpl) error {
		snapshots := tx.Bucket(util.BoltSnapshotsBucket)
		if snapshots == nil {
			return errNoSnapshot
		}
		last, _ := snapshots.Cursor().Last()
		if last == nil {
			return errNoSnapshot
		}
		snapshot := snapshots.GetBucket(last)
		if snapshot == nil {
			return errNoSnapshot
		}
		meta := snapshot.GetBucket(util.BoltMetaDataKey)
		if meta == nil {
			return errNoSnapshot
		}
		writer, err := meta.Get(util.BoltMetaDataFileWriterIDKey, nil)
		if err != nil {
			return err
		}
		reader, err := util.NewFileReader(string(writer), []byte(root))
		if err != nil {
			return err
		}
		segments := snapshot.Cursor()
		for key, _ := segments.First(); key != nil; key, _ = segments.Next() {
			bucket := snapshot.GetBucket(key)
			if bucket == nil {
				return fmt.Errorf("part %x of the snapshot is not described", key)
			}
			switch key[0] {
			case util.BoltMetaDataKey[0]:
				continue
			case util.BoltInternalKey[0]:
				value, err := bucket.Get(stampKey, reader)
				if err != nil {
					return err
				}
				stamp = bytes.Clone(value)
				continue
			}
			name, err := bucket.Get(util.BoltPathKey, nil)
			if err != nil {
				return err
			}
			files = append(files, string(name))
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(files)
	for _, name := range files {
		s, err := new(zap.ZapPlugin).Open(filepath.Join(store, name))
		if err != nil {
			return nil, nil, err
		}
		if err := s.Close(); err != nil {
			return nil, nil, err
		}
	}
	return files, stamp, nil
}

var _ recallindex.Rebuildable = (*Index)(nil)

// NewShadow implements recallindex.Rebuildable.
func (x *Index) NewShadow(ctx context.Context) (recallindex.Index, error) {
	if err := x.Discard(ctx); err != nil {
		return nil, err
	}
	if err := x.beginCall(ctx); err != nil {
		return nil, err
	}
	defer x.endCall()
	generation, err := x.begin(nextFile)
	if err != nil {
		return nil, fmt.Errorf("recall index: %w", err)
	}
	return x.shadow(generation), nil
}

// shadow returns the Index of a generation that is built.
func (x *Index) shadow(g generation) *Index {
	next := &Index{
		folder: x.folder, options: x.options, handles: map[string]*handle{}, owns: map[uuid.UUID]bool{},
		losses: map[string]loss{}, writes: map[string]writeCount{}, generation: g, isShadow: true,
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.next = next
	return next
}

// ResumeShadow implements recallindex.Rebuildable.
func (x *Index) ResumeShadow(ctx context.Context, target string) (recallindex.Index, bool, error) {
	if err := x.beginCall(ctx); err != nil {
		return nil, false, err
	}
	defer x.endCall()
	x.closeNext(ctx)
	generation, err := x.named(nextFile)
	if errors.Is(err, errNoGeneration) || err == nil && generation.target() != target {
		return nil, false, nil
	}
	if err != nil {
		x.options.Log.WarnContext(ctx, "recall index shadow is unusable", "err", err)
		return nil, false, nil
	}
	next := x.shadow(generation)
	err = next.loadSlots()
	if err == nil && next.damage() == nil && len(next.Losses()) == 0 {
		return next, true, nil
	}
	x.options.Log.WarnContext(ctx, "recall index shadow lost documents", "err", errors.Join(err, next.damage()))
	x.closeNext(ctx)
	return nil, false, nil
}

// closeNext closes the shadow, if there is one.
func (x *Index) closeNext(ctx context.Context) {
	x.mu.Lock()
	next := x.next
	x.next = nil
	x.mu.Unlock()
	if next == nil {
		return
	}
	if err := next.Close(); err != nil {
		x.options.Log.WarnContext(ctx, "close of recall index shadow failed", "err", err)
	}
}

// Promote implements recallindex.Rebuildable. The files are durable already. The end of a rebuild and
// the next lease of the projection may promote one generation at the same time.
func (x *Index) Promote(ctx context.Context, target string) (bool, error) {
	generation, err := x.named(nextFile)
	if errors.Is(err, errNoGeneration) || err == nil && generation.target() != target {
		return false, nil
	}
	if err != nil {
		x.options.Log.WarnContext(ctx, "recall index shadow is unusable", "err", err)
		return false, nil
	}
	before, handles, err := x.replace(ctx, generation)
	if err != nil || before == generation {
		return err == nil, err
	}
	for slot, h := range handles {
		h.life.Lock()
		if err := h.close(); err != nil {
			x.options.Log.WarnContext(ctx, "close of recall index slot failed", "slot", slot, "err", err)
		}
		h.life.Unlock()
	}
	// What cannot be removed now is removed at the next start.
	if err := os.RemoveAll(filepath.Join(x.folder, before.name)); err != nil {
		x.options.Log.WarnContext(ctx, "removal of old recall index generation failed, the next start retries",
			"generation", before.name, "err", err)
	}
	return true, nil
}

// replace waits for running calls, and switches to the new generation. It returns the one before,
// which is the same if another call was faster.
func (x *Index) replace(
	ctx context.Context, g generation,
) (before generation, handles map[string]*handle, err error) {
	defer x.lockCalls()()
	if x.closed {
		return before, nil, recallindex.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return before, nil, err
	}
	if x.used() == g {
		return g, nil, nil
	}
	// The new generation is in use from here on, also after a restart.
	if err := os.Rename(filepath.Join(x.folder, nextFile), filepath.Join(x.folder, currentFile)); err != nil {
		return before, nil, fmt.Errorf("recall index: %w", err)
	}
	if err := syncFolder(x.folder); err != nil {
		return before, nil, fmt.Errorf("recall index: %w", err)
	}
	x.mu.Lock()
	before, handles = x.generation, x.handles
	x.generation, x.damaged, x.handles = g, nil, map[string]*handle{}
	if next := x.next; next != nil && next.generation == g {
		x.handles = next.releaseHandles() // keep its slots open
	}
	x.next = nil
	for slot := range x.handles {
		x.compactLater(slot)
	}
	x.mu.Unlock()
	if err := x.loadSlots(); err != nil {
		return before, nil, fmt.Errorf("recall index: %w", err)
	}
	return before, handles, nil
}

// releaseHandles closes a shadow, and returns its open slots.
func (x *Index) releaseHandles() map[string]*handle {
	x.compaction.close()
	x.calls.Lock()
	defer x.calls.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	handles := x.handles
	x.handles = map[string]*handle{}
	for _, h := range handles {
		h.used = 0
	}
	return handles
}

// Discard implements recallindex.Rebuildable.
func (x *Index) Discard(ctx context.Context) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	x.closeNext(ctx)
	data, err := os.ReadFile(filepath.Join(x.folder, nextFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("recall index: %w", err)
	}
	if err := os.Remove(filepath.Join(x.folder, nextFile)); err != nil {
		return fmt.Errorf("recall index: %w", err)
	}
	g, err := parseGeneration(strings.TrimSpace(string(data)))
	if err != nil {
		return nil //nolint:nilerr // the file names nothing that this package wrote
	}
	if err := os.RemoveAll(filepath.Join(x.folder, g.name)); err != nil {
		return fmt.Errorf("recall index: %w", err)
	}
	return nil
}
