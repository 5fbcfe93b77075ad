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

// The format of a list of documents is that of Roaring without runs: the cookie, the number of containers, for
// each the upper half of its numbers and how many they are, less one, and where it begins; then the lower
// halves of the numbers of each container: in two bytes each, in order, or as bits if they are many.
const (
	roaringCookie  = 12346
	mostContainers = 1 << 16
	mostInArray    = 4096
	bitmapBytes    = 8192
	containerHead  = 8 // bytes of the head of a list, and of a container in it
)

// packList packs a list of documents. ok is false if a piece is not one, or would not get smaller. A packed list
// is the number of containers; for each the difference of its upper half to that before, how many numbers it
// has, less one, and their differences, less one, or their bits.
func packList(piece []byte) (packed []byte, ok bool) {
	if len(piece) < 2*containerHead || binary.LittleEndian.Uint32(piece) != roaringCookie {
		return nil, false
	}
	n := int(binary.LittleEndian.Uint32(piece[4:]))
	if n == 0 || n > mostContainers || len(piece) < containerHead*(n+1) {
		return nil, false
	}
	packed = make([]byte, 0, len(piece))
	packed = binary.AppendUvarint(append(packed, listMark), uint64(n))
	at, before := containerHead*(n+1), -1
	for i := range n {
		upper := int(binary.LittleEndian.Uint16(piece[containerHead+4*i:]))
		count := int(binary.LittleEndian.Uint16(piece[containerHead+4*i+2:])) + 1
		begins := int(binary.LittleEndian.Uint32(piece[containerHead+4*n+4*i:]))
		size := containerBytes(count)
		if begins != at || upper <= before || at+size > len(piece) {
			return nil, false
		}
		packed = binary.AppendUvarint(packed, uint64(upper-before-1))
		packed = binary.AppendUvarint(packed, uint64(count-1))
		if packed, ok = packContainer(packed, piece[at:at+size], count); !ok {
			return nil, false
		}
		at, before = at+size, upper
	}
	return packed, at == len(piece) && len(packed) < len(piece)
}

func containerBytes(count int) int {
	if count > mostInArray {
		return bitmapBytes
	}
	return 2 * count
}

func packContainer(packed, container []byte, count int) ([]byte, bool) {
	if count > mostInArray {
		return append(packed, container...), true
	}
	before := -1
	for ; len(container) > 0; container = container[2:] {
		number := int(binary.LittleEndian.Uint16(container))
		if number <= before {
			return nil, false
		}
		packed = binary.AppendUvarint(packed, uint64(number-before-1))
		before = number
	}
	return packed, true
}

// unpackList returns the list that packList packed.
func unpackList(packed []byte) ([]byte, error) {
	n, packed, ok := uvarint(packed)
	if !ok || n == 0 || n > mostContainers || n > len(packed) {
		return nil, errPacking
	}
	// Most numbers of a list take a byte.
	piece := make([]byte, containerHead*(n+1), containerHead*(n+1)+2*len(packed))
	binary.LittleEndian.PutUint32(piece, roaringCookie)
	binary.LittleEndian.PutUint32(piece[4:], uint32(n))
	upper := -1
	for i := range n {
		var step, count int
		step, packed, ok = uvarint(packed)
		if ok {
			count, packed, ok = uvarint(packed)
		}
		upper, count = upper+step+1, count+1
		if !ok || upper >= mostContainers || count > 1<<16 {
			return nil, errPacking
		}
		binary.LittleEndian.PutUint16(piece[containerHead+4*i:], uint16(upper))
		binary.LittleEndian.PutUint16(piece[containerHead+4*i+2:], uint16(count-1))
		binary.LittleEndian.PutUint32(piece[containerHead+4*n+4*i:], uint32(len(piece)))
		if piece, packed, ok = unpackContainer(piece, packed, count); !ok {
			return nil, errPacking
		}
	}
	if len(packed) > 0 {
		return nil, errPacking
	}
	return piece, nil
}

func unpackContainer(piece, packed []byte, count int) (_, rest []byte, ok bool) {
	if count > mostInArray {
		if len(packed) < bitmapBytes {
			return nil, nil, false
		}
		return append(piece, packed[:bitmapBytes]...), packed[bitmapBytes:], true
	}
	number := -1
	for range count {
		if len(packed) > 0 && packed[0] < 1<<7 {
			number += int(packed[0]) + 1
			packed = packed[1:]
		} else {
			var step int
			if step, packed, ok = uvarint(packed); !ok {
				return nil, nil, false
			}
			number += step + 1
		}
		if number >= 1<<16 {
			return nil, nil, false
		}
		piece = binary.LittleEndian.AppendUint16(piece, uint16(number))
	}
	return piece, packed, true
}

// uvarint reads a number of at most 17 bits, which all numbers of a list are.
func uvarint(data []byte) (n int, rest []byte, ok bool) {
	value, size := binary.Uvarint(data)
	if size <= 0 || value > 1<<17 {
		return 0, nil, false
	}
	return int(value), data[size:], true
}
