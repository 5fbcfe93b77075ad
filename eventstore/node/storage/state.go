package storage

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// A stream's metadata is the last event of its metastream, "$$" + its name.
const (
	MetaPrefix    = "$$"
	MetadataType  = "$metadata"
	TombstoneType = "$streamDeleted"
)

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

// parseMeta reads stream metadata. Like the server, it treats metadata with one invalid field as
// empty.
func parseMeta(data []byte) streamMeta {
	var raw struct {
		TruncateBefore *int64 `json:"$tb"`
		MaxCount       *int64 `json:"$maxCount"`
		MaxAge         *int64 `json:"$maxAge"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return streamMeta{}
	}
	var m streamMeta
	if raw.TruncateBefore != nil {
		if *raw.TruncateBefore < 0 {
			return streamMeta{}
		}
		m.truncateBefore = *raw.TruncateBefore
	}
	if raw.MaxCount != nil {
		if *raw.MaxCount <= 0 {
			return streamMeta{}
		}
		m.maxCount = *raw.MaxCount
	}
	if raw.MaxAge != nil {
		if *raw.MaxAge <= 0 {
			return streamMeta{}
		}
		m.maxAge = time.Duration(min(*raw.MaxAge, int64(math.MaxInt64/time.Second))) * time.Second
	}
	return m
}

// truncatedJSON returns the given metadata with $tb set; its other fields stay.
func truncatedJSON(metadata []byte, before int64) []byte {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(metadata, &fields); err != nil || fields == nil {
		fields = map[string]json.RawMessage{}
	}
	fields["$tb"] = json.RawMessage(fmt.Sprint(before))
	out, err := json.Marshal(fields)
	if err != nil { // every value was read from JSON just now
		panic(fmt.Sprintf("metadata that was read cannot be written: %v", err))
	}
	return out
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
