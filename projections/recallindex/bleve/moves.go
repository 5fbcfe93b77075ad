package bleve

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"sync"

	segment "github.com/blevesearch/scorch_segment_api/v2"
	"github.com/google/uuid"
)

// moves are the audiences of data points that were moved after their documents were indexed. A
// document keeps the audience in its segment; an entry here overrides it, so that a move rewrites
// no document. An entry is removed with the last document of its data point, so there are never
// more entries than data points.
//
// They are in memory and in an append-only file next to the index, which is synced, and compacted
// when most of it is obsolete.
type moves struct {
	mu sync.RWMutex
	of map[moveKey]uuid.UUID

	// The fields below belong to the writer of the index.
	path string
	// size is the length of the valid part of the file, records its number of records.
	size    int64
	records int
}

// moveKey is the name of a data point in a partition.
type moveKey string

// The file is a sequence of frames, each a count of records, their checksum, and the records: key
// and audience. The audience noAudience removes an entry.
const (
	movesSuffix  = ".moves"
	frameHead    = 8
	recordLength = ownerLength + 16
	// maxStaleRecords is how many obsolete records the file may hold, in addition to as many as there
	// are entries.
	maxStaleRecords = 1024
)

var noAudience = uuid.Max

// openMoves reads the file of an index. A missing file means no moves.
func openMoves(path string) (*moves, error) {
	m := &moves{of: map[moveKey]uuid.UUID{}, path: path}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	for rest := data; len(rest) >= frameHead; {
		n, sum := uint64(binary.BigEndian.Uint32(rest)), binary.BigEndian.Uint32(rest[4:])
		end := frameHead + n*recordLength
		if end > uint64(len(rest)) || n == 0 {
			break // an incomplete write: it was never acknowledged
		}
		records := rest[frameHead:end]
		if crc32.ChecksumIEEE(records) != sum {
			if end == uint64(len(rest)) {
				break
			}
			return nil, fmt.Errorf("%s: frame at %d does not match its checksum", path, m.size)
		}
		for ; len(records) > 0; records = records[recordLength:] {
			// A name without a prefix is padded with zeros.
			k := moveKey(bytes.TrimRight(records[:ownerLength], "\x00"))
			m.note(k, uuid.UUID(records[ownerLength:recordLength]))
		}
		rest = rest[end:]
		m.size += int64(end)
		m.records += int(n)
	}
	return m, nil
}

func (m *moves) note(k moveKey, audience uuid.UUID) {
	if audience == noAudience {
		delete(m.of, k)
		return
	}
	m.of[k] = audience
}

// audience returns the audience that a data point was moved to.
func (m *moves) audience(k moveKey) (uuid.UUID, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	audience, moved := m.of[k]
	return audience, moved
}

// moved reports whether a data point has an entry.
func (m *moves) moved(k moveKey) bool {
	_, moved := m.audience(k)
	return moved
}

// store makes changes durable, then visible to readers.
func (m *moves) store(changes map[moveKey]uuid.UUID) error {
	if len(changes) == 0 {
		return nil
	}
	if err := m.append(changes); err != nil {
		return err
	}
	m.mu.Lock()
	for k, audience := range changes {
		m.note(k, audience)
	}
	m.mu.Unlock()
	if m.records > 2*len(m.of)+maxStaleRecords {
		return m.compact()
	}
	return nil
}

func (m *moves) append(changes map[moveKey]uuid.UUID) (err error) {
	f, err := os.OpenFile(m.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// Remove what an incomplete write left.
	if err := f.Truncate(m.size); err != nil {
		return err
	}
	frame := frameOf(changes)
	if _, err := f.WriteAt(frame, m.size); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if m.size == 0 {
		if err := syncFolderOf(m.path); err != nil {
			return err
		}
	}
	m.size += int64(len(frame))
	m.records += len(changes)
	return nil
}

func frameOf(changes map[moveKey]uuid.UUID) []byte {
	frame := make([]byte, frameHead, frameHead+len(changes)*recordLength)
	for k, audience := range changes {
		var name [ownerLength]byte
		copy(name[:], k)
		frame = append(append(frame, name[:]...), audience[:]...)
	}
	binary.BigEndian.PutUint32(frame, uint32(len(changes)))
	binary.BigEndian.PutUint32(frame[4:], crc32.ChecksumIEEE(frame[frameHead:]))
	return frame
}

// compact rewrites the file with the current entries, unless it holds nothing else.
func (m *moves) compact() error {
	if m.records == len(m.of) {
		return nil
	}
	var data []byte
	if len(m.of) > 0 {
		data = frameOf(m.of)
	}
	if err := writeDurably(m.path, data); err != nil {
		return err
	}
	m.size, m.records = int64(len(data)), len(m.of)
	return nil
}

// lookupCost is how many documents of a segment are read in the time of one lookup of a data point.
const lookupCost = 4

// eachMoved calls put with every document of a segment whose data point was moved.
func (m *moves) eachMoved(s segment.Segment, put func(doc uint64, audience uuid.UUID)) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.of) == 0 {
		return nil
	}
	owners, err := ownersIn(s)
	if err != nil {
		return err
	}
	putChecked := func(doc uint64, audience uuid.UUID) error {
		if doc >= s.Count() {
			return fmt.Errorf("document %d of %d", doc, s.Count())
		}
		put(doc, audience)
		return nil
	}
	if uint64(len(m.of))*lookupCost < s.Count() {
		for k, audience := range m.of {
			if err := owners.each(string(k), func(doc uint64) error { return putChecked(doc, audience) }); err != nil {
				return err
			}
		}
		return nil
	}
	length := 0 // the length of names in this slot
	for k := range m.of {
		length = len(k)
		break
	}
	all := owners.ids.AutomatonIterator(nil, nil, nil)
	for {
		entry, err := all.Next()
		if err != nil || entry == nil {
			return err
		}
		if len(entry.Term) <= length {
			continue // the filler
		}
		if audience, moved := m.of[moveKey(entry.Term[:length])]; moved {
			if err := owners.eachOfTerm(owners.ids, entry.Term,
				func(doc uint64) error { return putChecked(doc, audience) }); err != nil {
				return err
			}
		}
	}
}
