// Package wire reads and writes the protobuf encoding of the EventStoreDB protocol field by field.
// The generated types cost a message, a map and several strings an event; the append and read
// paths avoid them.
package wire

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"
)

// The field numbers of UUIDs and of map entries in the protocol.
const (
	FieldUUIDStructured = 1
	FieldUUIDMost       = 1
	FieldUUIDLeast      = 2

	FieldMapKey   = 1
	FieldMapValue = 2
)

// The keys of the system metadata that every event carries, and the content types.
const (
	KeyType        = "type"
	KeyContentType = "content-type"
	KeyCreated     = "created"

	ContentTypeJSON = "application/json"
	ContentTypeRaw  = "application/octet-stream"
)

// AppendUint appends a varint field.
func AppendUint(b []byte, number protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
}

// SizeUint returns the size of a varint field.
func SizeUint(number protowire.Number, v uint64) int {
	return protowire.SizeTag(number) + protowire.SizeVarint(v)
}

// AppendEntry appends one entry of a map field of strings.
func AppendEntry(b []byte, number protowire.Number, key, value string) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(sizeContent(key, value)))
	b = protowire.AppendTag(b, FieldMapKey, protowire.BytesType)
	b = protowire.AppendString(b, key)
	b = protowire.AppendTag(b, FieldMapValue, protowire.BytesType)
	return protowire.AppendString(b, value)
}

// SizeEntry returns the size of what AppendEntry appends.
func SizeEntry(number protowire.Number, key, value string) int {
	return protowire.SizeTag(number) + protowire.SizeBytes(sizeContent(key, value))
}

func sizeContent(key, value string) int {
	return protowire.SizeTag(FieldMapKey) + protowire.SizeBytes(len(key)) +
		protowire.SizeTag(FieldMapValue) + protowire.SizeBytes(len(value))
}

// EachField calls f with every field of a message: v is the value of a varint, sub that of a
// length-delimited field. It reports whether the message is well-formed and f always returned true.
func EachField(b []byte, f func(number protowire.Number, v uint64, sub []byte) bool) bool {
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		var v uint64
		var sub []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			sub, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, typ, b)
		}
		if n < 0 || !f(number, v, sub) {
			return false
		}
		b = b[n:]
	}
	return true
}

// FindBytes returns the last length-delimited field with a number.
func FindBytes(b []byte, number protowire.Number) (found []byte, ok bool) {
	sound := EachField(b, func(n protowire.Number, _ uint64, sub []byte) bool {
		if n == number && sub != nil {
			found, ok = sub, true
		}
		return true
	})
	return found, ok && sound
}

// UUIDHalves splits an id into the two numbers that the protocol sends.
func UUIDHalves(id uuid.UUID) (most, least uint64) {
	return binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
}

// UUIDFromHalves is the reverse of UUIDHalves.
func UUIDFromHalves(most, least uint64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], most)
	binary.BigEndian.PutUint64(id[8:], least)
	return id
}

// Ticks formats a time as the protocol does: units of 100 ns since the Unix epoch.
func Ticks(t time.Time) string { return strconv.FormatInt(t.UnixNano()/100, 10) }

// ParseTicks is the reverse of Ticks.
func ParseTicks(b []byte) (t time.Time, ok bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || n > math.MaxInt64/100 || n < math.MinInt64/100 {
		return time.Time{}, false
	}
	return time.Unix(0, n*100).UTC(), true
}
