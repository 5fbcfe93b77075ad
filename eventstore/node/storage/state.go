package storage

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A stream's metadata is the last event of its metastream, "$$" + its name.
const (
	MetaPrefix    = "$$"
	MetadataType  = "$metadata"
	TombstoneType = "$streamDeleted"
)

// metaLevels is how many metastreams a stream may have: that of a metastream holds what deletes of
// the metastream wrote, and nobody else can write to it.
const metaLevels = 2

// softDeleted is the value of $tb that hides a stream until it is written again.
const softDeleted = math.MaxInt64

// IsMeta reports whether a stream holds the metadata of another.
func IsMeta(stream string) bool { return strings.HasPrefix(stream, MetaPrefix) }

// streamState is what a decision about a stream needs.
type streamState struct {
	// id identifies the stream in the keys of its events: the position of its first event, 0 if it
	// has none.
	id uint64
	// last is the revision of the last event, -1 if there is none.
	last int64
	// tombstone is the position of the event that ended the stream permanently, else 0.
	tombstone uint64
	// hasMeta is true if metadata was ever written for the stream.
	hasMeta bool
	meta    streamMeta
	// group numbers the group commit that last wrote the stream; it is not stored.
	group uint64
}

func (s *streamState) deleted() bool     { return s.tombstone != 0 }
func (s *streamState) softDeleted() bool { return s.meta.truncateBefore == softDeleted }

// removalGrace is how long what $tb hides is kept.
func (s *streamState) removalGrace() time.Duration {
	if s.softDeleted() {
		return softDeleteGrace
	}
	return 0
}

// exists reports whether a client sees the stream.
func (s *streamState) exists() bool { return s.last >= 0 && !s.softDeleted() }

// firstReadable is the lowest revision that $tb and $maxCount show.
func (s *streamState) firstReadable() int64 {
	first := s.meta.truncateBefore
	if s.meta.maxCount > 0 {
		first = max(first, s.last-s.meta.maxCount+1)
	}
	return max(first, 0)
}

// streamMeta is the part of a stream's metadata that has an effect here. A zero field sets no
// bound.
type streamMeta struct {
	truncateBefore int64
	maxCount       int64
	maxAge         time.Duration
}

// bounded reports whether a stream loses events by being written or by growing old.
func (m streamMeta) bounded() bool { return m.maxCount > 0 || m.maxAge > 0 }

// metaMeta is the metadata of every metastream: a reader sees its last event only.
var metaMeta = streamMeta{maxCount: 1}

// keyTruncateBefore is the key of the revision below which readers see no event.
const keyTruncateBefore = "$tb"

// parseMeta reads stream metadata. Like the server, it treats metadata with one invalid field as
// empty.
func parseMeta(data []byte) streamMeta {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return streamMeta{}
	}
	before, validBefore := metaNumber(fields[keyTruncateBefore], 0)
	count, validCount := metaNumber(fields["$maxCount"], 1)
	age, validAge := metaNumber(fields["$maxAge"], 1)
	if !validBefore || !validCount || !validAge {
		return streamMeta{}
	}
	return streamMeta{
		truncateBefore: before,
		maxCount:       count,
		maxAge:         time.Duration(min(age, int64(math.MaxInt64/time.Second))) * time.Second,
	}
}

// metaNumber reads a field that must be a whole number from least on. It is 0 if the field is
// missing or null.
func metaNumber(field json.RawMessage, least int64) (number int64, valid bool) {
	if field == nil {
		return 0, true
	}
	var value *int64
	if err := json.Unmarshal(field, &value); err != nil {
		return 0, false
	}
	if value == nil {
		return 0, true
	}
	return *value, *value >= least
}

// truncatedJSON returns metadata with $tb set. Everything else stays as it was written; metadata
// that is no JSON object is replaced.
func truncatedJSON(metadata []byte, before int64) []byte {
	number := strconv.FormatInt(before, 10)
	if !validMeta(metadata) {
		return []byte(`{"` + keyTruncateBefore + `":` + number + `}`)
	}
	spans, empty, err := fieldSpans(metadata, keyTruncateBefore)
	if err != nil {
		panic(fmt.Sprintf("metadata that was read cannot be read again: %v", err))
	}
	var out []byte
	copied := 0
	for _, s := range spans {
		out = append(append(out, metadata[copied:s[0]]...), number...)
		copied = s[1]
	}
	if len(spans) == 0 {
		copied = bytes.LastIndexByte(metadata, '}')
		out = append(out, metadata[:copied]...)
		if !empty {
			out = append(out, ',')
		}
		out = append(out, `"`+keyTruncateBefore+`":`+number...)
	}
	return append(out, metadata[copied:]...)
}

// fieldSpans returns where the values of a key of a JSON object begin and end: a key may be there
// more than once. empty reports that the object has no keys.
func fieldSpans(object []byte, key string) (spans [][2]int, empty bool, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil { // the brace
		return nil, false, err
	}
	for empty = !d.More(); d.More(); {
		name, err := d.Token()
		if err != nil {
			return nil, false, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, false, err
		}
		if name == key {
			end := int(d.InputOffset())
			spans = append(spans, [2]int{end - len(value), end})
		}
	}
	return spans, empty, nil
}

// validMeta reports whether metadata is a JSON object, so that $tb can be set in it.
func validMeta(metadata []byte) bool {
	var fields map[string]json.RawMessage
	return json.Unmarshal(metadata, &fields) == nil && fields != nil
}

// stateVersion is the first byte of a stored state.
const stateVersion = 1

func (s *streamState) encode() []byte {
	b := append(make([]byte, 0, 40), stateVersion)
	b = binary.AppendUvarint(b, s.id)
	b = binary.AppendVarint(b, s.last)
	b = binary.AppendUvarint(b, s.tombstone)
	flag := byte(0)
	if s.hasMeta {
		flag = 1
	}
	b = append(b, flag)
	b = binary.AppendVarint(b, s.meta.truncateBefore)
	b = binary.AppendVarint(b, s.meta.maxCount)
	return binary.AppendVarint(b, int64(s.meta.maxAge))
}

var errState = errors.New("stored stream state is damaged")

func decodeState(b []byte) (*streamState, error) {
	if len(b) == 0 || b[0] != stateVersion {
		return nil, errState
	}
	r := varints{rest: b[1:]}
	s := &streamState{id: r.unsigned(), last: r.signed(), tombstone: r.unsigned()}
	s.hasMeta = r.flag()
	s.meta = streamMeta{truncateBefore: r.signed(), maxCount: r.signed(), maxAge: time.Duration(r.signed())}
	if r.damaged || len(r.rest) != 0 {
		return nil, errState
	}
	return s, nil
}

// varints reads numbers one after the other, and records whether one was missing.
type varints struct {
	rest    []byte
	damaged bool
}

func (r *varints) unsigned() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.skip(n)
	return v
}

func (r *varints) signed() int64 {
	v, n := binary.Varint(r.rest)
	r.skip(n)
	return v
}

func (r *varints) flag() bool {
	if len(r.rest) == 0 {
		r.damaged = true
		return false
	}
	v := r.rest[0]
	r.rest = r.rest[1:]
	return v != 0
}

func (r *varints) skip(n int) {
	if n <= 0 {
		r.damaged, r.rest = true, nil
		return
	}
	r.rest = r.rest[n:]
}
