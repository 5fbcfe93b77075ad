package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/annals-project/annals/eventstore/node/wire"
)

// formatFile contains one line, formatName and the number of the format of the log. Folders that
// are older than this file have format 1.
const (
	formatFile = "FORMAT"
	formatName = "annals-log"
	// unfinishedRestore replaces the number while a restore fills the folder.
	unfinishedRestore = "unfinished"
)

// The formats.
//
//	1  events, revisions, states, removals
//	2  the streams that are bounded by number or age are listed (boundedKey)
const newestFormat = 2

// readFormat returns the format of the log of a folder; 0 if there is no log. The engine must not
// have opened the folder: it would begin an empty log if the files of the old one are not as it
// expects.
func readFormat(fs vfs.FS, dir string) (int, error) {
	desc, err := pebble.Peek(dir, fs)
	if err != nil {
		return 0, openError(dir, err)
	}
	text, err := readSmall(fs, fs.PathJoin(dir, formatFile))
	if errors.Is(err, os.ErrNotExist) {
		return formatOfOld(fs, dir, desc.Exists)
	}
	if err != nil {
		return 0, openError(dir, err)
	}
	name, value, _ := strings.Cut(strings.TrimSpace(text), " ")
	if name == formatName && value == unfinishedRestore {
		return 0, fmt.Errorf("data folder %s holds a restore that did not finish: remove the folder and restore again", dir)
	}
	format, err := strconv.Atoi(value)
	switch {
	case name != formatName || err != nil || format < 1:
		return 0, damagedError(dir, fmt.Errorf("the file %s does not hold the number of a format", formatFile))
	case format > newestFormat:
		return 0, newerError(dir, fmt.Sprintf("format %d; this one knows formats up to %d", format, newestFormat))
	case !desc.Exists:
		return 0, damagedError(dir, errors.New("the marker of its manifest is missing"))
	}
	return format, nil
}

// formatOfOld returns the format of a folder without formatFile: it was never used, or is older
// than that file.
func formatOfOld(fs vfs.FS, dir string, exists bool) (int, error) {
	if exists {
		return 1, nil
	}
	names, err := fs.List(dir)
	if err != nil {
		return 0, fmt.Errorf("data folder %s: %w", dir, err)
	}
	for _, name := range names {
		if _, isLog := logNumber(name); isLog || strings.HasSuffix(name, ".sst") {
			return 0, damagedError(dir, errors.New("the marker of its manifest is missing"))
		}
	}
	return 0, nil
}

// writeFormat writes the format of a folder: a number, or unfinishedRestore.
func writeFormat(fs vfs.FS, dir, format string) error {
	return writeAtomic(fs, dir, formatFile, []byte(formatName+" "+format+"\n"))
}

// upgrade converts a log to the newest format.
func (s *store) upgrade(from int) error {
	if from == newestFormat {
		return nil
	}
	if from == 1 {
		if err := s.listBounded(); err != nil {
			return fmt.Errorf("bring the log to format %d: %w", newestFormat, err)
		}
	}
	return writeFormat(s.disk.FS, s.disk.dir, strconv.Itoa(newestFormat))
}

// listBounded marks the streams that are bounded.
func (s *store) listBounded() (err error) {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceStream}, UpperBound: []byte{spaceStream + 1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	batch := s.db.NewBatch()
	for valid := iter.First(); valid; valid = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return errors.Join(err, batch.Close())
		}
		// A state that cannot be read fails the calls of its stream, not the start.
		if state, err := decodeState(value); err != nil || !state.meta.bounded() {
			continue
		}
		if err := batch.Set(boundedKey(string(iter.Key()[1:])), nil, nil); err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	if err := iter.Error(); err != nil {
		return errors.Join(err, batch.Close())
	}
	return s.commit(batch)
}

// readSmall reads a file of a few lines.
func readSmall(fs vfs.FS, path string) (_ string, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.LimitReader(f, 64<<20))
	return string(text), err
}

// writeAtomic replaces a file so that a crash leaves either the old one or the new one.
func writeAtomic(fs vfs.FS, dir, name string, content []byte) error {
	path := fs.PathJoin(dir, name)
	f, err := fs.Create(path+".tmp", vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fs.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncFolder(fs, dir)
}

func syncFolder(fs vfs.FS, dir string) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("fsync %s: %w", dir, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("fsync %s: %w", dir, err)
	}
	return nil
}

// The key families: see the package comment.
const (
	spaceEvent    = 'e'
	spaceRevision = 'r'
	spaceStream   = 's'
	spacePending  = 'p'
	spaceBounded  = 'b'
	spaceHole     = 'h'
)

// TombstoneRevision is the revision of the event that ends a stream permanently.
const TombstoneRevision = math.MaxInt64

func eventKey(position uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{spaceEvent}, position)
}

// revisionKey orders the events of one stream; revisions are never negative.
func revisionKey(streamID uint64, revision int64) []byte {
	key := append(make([]byte, 0, 17), spaceRevision)
	key = binary.BigEndian.AppendUint64(key, streamID)
	return binary.BigEndian.AppendUint64(key, uint64(revision))
}

func pendingKey(position uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{spacePending}, position)
}

func streamKey(name string) []byte { return append([]byte{spaceStream}, name...) }

// boundedKey marks a stream that loses events by being written or by growing old.
func boundedKey(stream string) []byte { return append([]byte{spaceBounded}, stream...) }

func positionOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[1:9]) }
func revisionOf(key []byte) int64  { return int64(binary.BigEndian.Uint64(key[9:17])) }

// Field numbers of streams.proto, from ReadResp down.
const (
	fieldRespEvent = 1

	fieldEventRecord   = 1
	fieldEventPosition = 3

	fieldRecordID       = 1
	fieldRecordStream   = 2
	fieldRecordRevision = 3
	fieldRecordPrepare  = 4
	fieldRecordCommit   = 5
	fieldRecordSystem   = 6
	fieldRecordMeta     = 7
	fieldRecordData     = 8

	fieldStreamName = 3
)

// Proposed is an event to append, encoded except for its place in the log.
type Proposed struct {
	id uuid.UUID
	// fixed is the part of the record that does not depend on the place.
	fixed []byte
	// metadata is the data of an event that is JSON in a metastream, else nil.
	metadata []byte
}

// Propose encodes an event to append to a stream. It copies data and meta.
func Propose(stream string, id uuid.UUID, typ string, isJSON bool, data, meta []byte) Proposed {
	contentType := wire.ContentTypeRaw
	if isJSON {
		contentType = wire.ContentTypeJSON
	}
	most, least := wire.UUIDHalves(id)
	b := make([]byte, 0, len(stream)+len(typ)+len(data)+len(meta)+128)

	structured := wire.SizeUint(wire.FieldUUIDMost, most) + wire.SizeUint(wire.FieldUUIDLeast, least)
	b = protowire.AppendTag(b, fieldRecordID, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(wire.FieldUUIDStructured)+protowire.SizeBytes(structured)))
	b = protowire.AppendTag(b, wire.FieldUUIDStructured, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(structured))
	b = wire.AppendUint(b, wire.FieldUUIDMost, most)
	b = wire.AppendUint(b, wire.FieldUUIDLeast, least)

	b = protowire.AppendTag(b, fieldRecordStream, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(fieldStreamName)+protowire.SizeBytes(len(stream))))
	b = protowire.AppendTag(b, fieldStreamName, protowire.BytesType)
	b = protowire.AppendString(b, stream)

	b = wire.AppendEntry(b, fieldRecordSystem, wire.KeyType, typ)
	b = wire.AppendEntry(b, fieldRecordSystem, wire.KeyContentType, contentType)
	b = protowire.AppendTag(b, fieldRecordMeta, protowire.BytesType)
	b = protowire.AppendBytes(b, meta)
	b = protowire.AppendTag(b, fieldRecordData, protowire.BytesType)
	b = protowire.AppendBytes(b, data)

	p := Proposed{id: id, fixed: b}
	if IsMeta(stream) && isJSON {
		p.metadata = bytes.Clone(data)
	}
	return p
}

// Record completes an event with its place and time, and returns the bytes of a ReadResp message.
func (p Proposed) Record(revision int64, position uint64, created string) []byte {
	system := wire.SizeEntry(fieldRecordSystem, wire.KeyCreated, created)
	inner := len(p.fixed) + system + wire.SizeUint(fieldRecordRevision, uint64(revision)) +
		wire.SizeUint(fieldRecordPrepare, position) + wire.SizeUint(fieldRecordCommit, position)
	outer := protowire.SizeTag(fieldEventRecord) + protowire.SizeBytes(inner) + wire.SizeUint(fieldEventPosition, position)

	b := make([]byte, 0, protowire.SizeTag(fieldRespEvent)+protowire.SizeBytes(outer))
	b = protowire.AppendTag(b, fieldRespEvent, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(outer))
	b = protowire.AppendTag(b, fieldEventRecord, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(inner))
	b = append(b, p.fixed...)
	b = wire.AppendUint(b, fieldRecordRevision, uint64(revision))
	b = wire.AppendUint(b, fieldRecordPrepare, position)
	b = wire.AppendUint(b, fieldRecordCommit, position)
	b = wire.AppendEntry(b, fieldRecordSystem, wire.KeyCreated, created)
	return wire.AppendUint(b, fieldEventPosition, position)
}

// Recorded is what the engine and the node read of a stored event. Its slices are parts of the
// record.
type Recorded struct {
	ID       uuid.UUID
	Stream   []byte
	Revision int64
	Position uint64
	Type     []byte
	Created  time.Time
	Data     []byte
}

// ErrDamagedRecord means that a stored event does not decode or fails its checksum.
var ErrDamagedRecord = errors.New("stored event is damaged")

// ParseRecord reads a stored event.
func ParseRecord(b []byte) (Recorded, error) {
	var r Recorded
	resp, ok := wire.FindBytes(b, fieldRespEvent)
	if !ok {
		return r, ErrDamagedRecord
	}
	inner, ok := wire.FindBytes(resp, fieldEventRecord)
	if !ok {
		return r, ErrDamagedRecord
	}
	var most, least uint64
	ok = wire.EachField(inner, func(number protowire.Number, v uint64, sub []byte) bool {
		switch number {
		case fieldRecordID:
			structured, found := wire.FindBytes(sub, wire.FieldUUIDStructured)
			return found && wire.EachField(structured, func(half protowire.Number, v uint64, _ []byte) bool {
				switch half {
				case wire.FieldUUIDMost:
					most = v
				case wire.FieldUUIDLeast:
					least = v
				}
				return true
			})
		case fieldRecordStream:
			var found bool
			r.Stream, found = wire.FindBytes(sub, fieldStreamName)
			return found
		case fieldRecordRevision:
			r.Revision = int64(v)
		case fieldRecordCommit:
			r.Position = v
		case fieldRecordSystem:
			return r.system(sub)
		case fieldRecordData:
			r.Data = sub
		}
		return true
	})
	if !ok || r.Position == 0 || r.Revision < 0 || len(r.Type) == 0 {
		return Recorded{}, ErrDamagedRecord
	}
	r.ID = wire.UUIDFromHalves(most, least)
	return r, nil
}

// system reads one entry of the system metadata.
func (r *Recorded) system(entry []byte) bool {
	key, ok := wire.FindBytes(entry, wire.FieldMapKey)
	if !ok {
		return false
	}
	value, ok := wire.FindBytes(entry, wire.FieldMapValue)
	if !ok {
		return false
	}
	switch string(key) {
	case wire.KeyType:
		r.Type = value
	case wire.KeyCreated:
		ticks, ok := wire.ParseTicks(value)
		if !ok {
			return false
		}
		r.Created = ticks
	}
	return true
}

// markFile records how far the log certainly reaches. The engine takes a truncated manifest for one
// whose end a crash tore off, and would continue with a log that is older or has a gap. A start
// compares the log with the mark.
const markFile = "MARK"

// mark records how far a log reaches. Everything in it was fsynced before it was written.
type mark struct {
	head     uint64
	manifest string
	size     int64
}

// mark returns the current mark for a head.
func (d *disk) mark(head uint64) mark {
	d.mu.Lock()
	defer d.mu.Unlock()
	return mark{head: head, manifest: d.manifest, size: d.manifestSize}
}

// writeMark writes the mark for a head, if it changed.
func (s *store) writeMark(head uint64) error {
	m := s.disk.mark(head)
	if m == s.marked || m.manifest == "" {
		return nil
	}
	text := fmt.Appendf(nil, "%d %s %d\n", m.head, m.manifest, m.size)
	if err := writeAtomic(s.disk.FS, s.disk.dir, markFile, text); err != nil {
		return err
	}
	s.marked = m
	return nil
}

// readMark reads the mark of a folder. Without a file it is empty.
func readMark(fs vfs.FS, dir string) (m mark, err error) {
	text, err := readSmall(fs, fs.PathJoin(dir, markFile))
	if errors.Is(err, os.ErrNotExist) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, openError(dir, err)
	}
	if _, err := fmt.Sscanf(text, "%d %s %d\n", &m.head, &m.manifest, &m.size); err != nil {
		return mark{}, damagedError(dir, fmt.Errorf("the file %s cannot be read", markFile))
	}
	return m, nil
}

// checkManifest compares the manifest with the mark, before the engine opens it.
func (m mark) checkManifest(fs vfs.FS, dir string) error {
	if m.manifest == "" {
		return nil
	}
	info, err := fs.Stat(fs.PathJoin(dir, m.manifest))
	if errors.Is(err, os.ErrNotExist) { // a newer manifest has replaced it
		return nil
	}
	if err != nil {
		return openError(dir, err)
	}
	if info.Size() < m.size {
		return damagedError(dir, fmt.Errorf("its manifest %s was cut from %d bytes to %d", m.manifest, m.size, info.Size()))
	}
	return nil
}

// checkHead compares the end of the log with the mark.
func (m mark) checkHead(dir string, head uint64) error {
	if head < m.head {
		return damagedError(dir, fmt.Errorf("it ends at position %d, and had come to %d", head, m.head))
	}
	return nil
}

// isManifest reports whether a file is a manifest.
func isManifest(name string) bool { return strings.HasPrefix(name, "MANIFEST-") }
