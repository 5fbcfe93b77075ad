package bleve

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/util"
	zap "github.com/blevesearch/zapx/v17"
	"github.com/google/uuid"
)

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
