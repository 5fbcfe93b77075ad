package bleve

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	index "github.com/blevesearch/bleve_index_api"
)

// Bleve lets a program transform the pieces of its files. Most of an index are lists of documents and their
// frequencies. Bleve writes a document in two bytes, and its frequency in one, zero in fields without
// frequencies. So lists are written as the differences of their numbers (packing_list.go), and runs of zeros as
// their length. Any other piece stays as it is, and is read in place, except that one that begins like a packed
// one is marked.
const (
	packing    = "annals-1"
	listMark   = 0xFD
	zerosMark  = 0xFE
	literal    = 0xFF
	leastZeros = 4
	// mostZeros bounds what the length in a damaged file can make a reader allocate.
	mostZeros = 1 << 26
)

var errPacking = errors.New("a piece of the index is damaged")

// zeros are shared by readers, which do not write.
var zeros [1 << 16]byte

// RegisterPacking lets Bleve read and write packed files. It must run before any of them is opened, and Open runs it.
var RegisterPacking = sync.OnceFunc(func() {
	index.WriterHook = func(context []byte) (string, func([]byte) []byte, error) {
		if isOfPage(string(context)) {
			return "", nil, nil
		}
		return packing, pack, nil
	}
	index.ReaderHook = func(id string, _ []byte) (func([]byte) ([]byte, error), error) {
		switch id {
		case "":
			return nil, nil //nolint:nilnil // no reader: the files are read as they are
		case packing:
			return unpack, nil
		}
		return nil, fmt.Errorf("files of the index are packed by %q", id)
	}
})

// isOfPage reports whether a path is that of the file of a page, which Bleve asks for before it makes the file; a merge
// asks once its file is there. To pack the file of a page, Bleve would write all of it a second time, by a merge of
// one. The next merge packs it.
func isOfPage(path string) bool {
	if filepath.Ext(path) != ".zap" {
		return false
	}
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func pack(piece []byte) []byte {
	if len(piece) == 0 {
		return piece
	}
	if piece[0] >= listMark {
		return append([]byte{literal}, piece...)
	}
	if len(piece) < leastZeros || len(piece) > mostZeros {
		return piece
	}
	if packed, ok := packList(piece); ok {
		return packed
	}
	for _, b := range piece {
		if b != 0 {
			return piece
		}
	}
	return binary.AppendUvarint([]byte{zerosMark}, uint64(len(piece)))
}

func unpack(piece []byte) ([]byte, error) {
	if len(piece) == 0 {
		return piece, nil
	}
	switch piece[0] {
	case literal:
		return piece[1:], nil
	case listMark:
		return unpackList(piece[1:])
	case zerosMark:
		n, size := binary.Uvarint(piece[1:])
		if size <= 0 || size != len(piece)-1 || n > mostZeros {
			return nil, errPacking
		}
		if n <= uint64(len(zeros)) {
			return zeros[:n:n], nil
		}
		return make([]byte, n), nil
	}
	return piece, nil
}
