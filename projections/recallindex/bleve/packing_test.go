package bleve

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// What is packed is read as it was, and a run of zeros takes a few bytes.
func TestPack_Law(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()), rapid.SliceOf(rapid.SampledFrom([]byte{0, 0, 0, zerosMark, literal})),
			rapid.Map(rapid.IntRange(0, 3*len(zeros)), func(n int) []byte { return make([]byte, n) }),
		).Draw(t, "piece")
		packed := pack(bytes.Clone(piece))
		got, err := unpack(packed)
		if err != nil || !bytes.Equal(got, piece) {
			t.Fatalf("%x is read as %x, %v", piece, got, err)
		}
		if len(packed) > len(piece)+1 || len(piece) > leastZeros && len(bytes.Trim(piece, "\x00")) == 0 && len(packed) > 5 {
			t.Fatalf("%d bytes are packed into %d", len(piece), len(packed))
		}
	})
}

// A list of documents is packed into less, and a damaged one is an error or another list, never a panic.
func TestPack_Lists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		docs := roaring.New()
		most := rapid.SampledFrom([]uint32{100, 70_000, 300_000}).Draw(t, "most")
		every := rapid.SampledFrom([]uint32{1, 7, 40, 1000, 50_000}).Draw(t, "every")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		for doc := r.Uint32N(every); doc < most; doc += 1 + r.Uint32N(2*every) {
			docs.Add(doc)
		}
		piece, err := docs.ToBytes()
		if err != nil {
			t.Fatal(err)
		}
		packed := pack(bytes.Clone(piece))
		got, err := unpack(packed)
		if err != nil || !bytes.Equal(got, piece) {
			t.Fatalf("a list of %d documents is read otherwise: %v", docs.GetCardinality(), err)
		}
		if n := docs.GetCardinality(); n > 1 && len(packed) >= len(piece) {
			t.Fatalf("%d documents in %d bytes are packed into %d", n, len(piece), len(packed))
		}
		at := rapid.IntRange(0, len(packed)-1).Draw(t, "damaged")
		packed[at] ^= rapid.ByteRange(1, 255).Draw(t, "by")
		_, _ = unpack(packed)
		_, _ = unpack(packed[:at])
	})
}

func TestUnpack_Damaged(t *testing.T) {
	for _, piece := range [][]byte{
		{listMark},
		{listMark, 1},
		{listMark, 1, 0, 0},
		{listMark, 0},
		{zerosMark},
		{zerosMark, 5, 5},
		{zerosMark, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F},
	} {
		if _, err := unpack(piece); err == nil {
			t.Errorf("%x is read", piece)
		}
	}
}

// The file of a page is written as it is, and what merges make of several is packed.
func TestPacking_OfMerges(t *testing.T) {
	folder := t.TempDir()
	x, err := Open(folder, Options{})
	if err != nil {
		t.Fatal(err)
	}
	packedFiles := func() (packed, plain int) {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || filepath.Ext(path) != ".zap" {
				return nil // merged since
			}
			data, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if bytes.Contains(data, []byte(packing)) {
				packed++
			} else {
				plain++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return packed, plain
	}
	page := func(n int) {
		change := recallindex.Change{Analysis: indextest.Analysis, Project: uuid.UUID{1}}
		for i := range 60 {
			d := recallindex.Document{Key: recallindex.Key{Revision: 1}, Terms: recall.Terms{Text: []string{"tea", "cup"}}}
			d.DataPoint[0], d.DataPoint[1] = byte(n), byte(i)
			change.Upserts = append(change.Upserts, d)
		}
		if err := x.Apply(t.Context(), []recallindex.Change{change}); err != nil {
			t.Fatal(err)
		}
	}
	page(0)
	if packed, plain := packedFiles(); packed > 0 || plain == 0 {
		t.Errorf("after a page %d files are packed, and %d are not", packed, plain)
	}
	for n := range 60 {
		page(n + 1)
	}
	runtest.Await(t, "a merged file is packed", func() bool { packed, _ := packedFiles(); return packed > 0 })
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}
