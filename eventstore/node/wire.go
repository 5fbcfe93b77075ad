package node

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"
)

func appendUint(b []byte, number protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
}

func sizeUint(number protowire.Number, v uint64) int {
	return protowire.SizeTag(number) + protowire.SizeVarint(v)
}

// appendSystem appends one entry of the system metadata, which is a map.
func appendSystem(b []byte, key, value string) []byte {
	b = protowire.AppendTag(b, fieldRecordSystem, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(sizeEntry(key, value)))
	b = protowire.AppendTag(b, fieldMapKey, protowire.BytesType)
	b = protowire.AppendString(b, key)
	b = protowire.AppendTag(b, fieldMapValue, protowire.BytesType)
	return protowire.AppendString(b, value)
}

func sizeSystem(key, value string) int {
	return protowire.SizeTag(fieldRecordSystem) + protowire.SizeBytes(sizeEntry(key, value))
}

func sizeEntry(key, value string) int {
	return protowire.SizeTag(fieldMapKey) + protowire.SizeBytes(len(key)) + protowire.SizeTag(fieldMapValue) + protowire.SizeBytes(len(value))
}

// eachField calls f with every field of a message: v is the value of a varint, sub that of a length-delimited one.
// It says whether the message was sound and f always true.
func eachField(b []byte, f func(number protowire.Number, v uint64, sub []byte) bool) bool {
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

// findBytes returns the last length-delimited field of that number.
func findBytes(b []byte, number protowire.Number) (found []byte, ok bool) {
	sound := eachField(b, func(n protowire.Number, _ uint64, sub []byte) bool {
		if n == number && sub != nil {
			found, ok = sub, true
		}
		return true
	})
	return found, ok && sound
}

func uuidHalves(id uuid.UUID) (most, least uint64) {
	return binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
}

func uuidFromHalves(most, least uint64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], most)
	binary.BigEndian.PutUint64(id[8:], least)
	return id
}

// ticks is a time as the protocol says it: units of 100 ns since the Unix epoch.
func ticks(t time.Time) string { return strconv.FormatInt(t.UnixNano()/100, 10) }

func parseTicks(b []byte) (time.Time, bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || n > math.MaxInt64/100 || n < math.MinInt64/100 {
		return time.Time{}, false
	}
	return time.Unix(0, n*100).UTC(), true
}
