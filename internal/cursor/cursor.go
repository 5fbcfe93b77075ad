// Package cursor is the place of an entry in a list that is ordered by time and id.
package cursor

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Cursor is the place of an entry.
type Cursor struct {
	At time.Time
	ID uuid.UUID
}

// MaxMicros is the end of the year 9999, which Postgres still holds.
const MaxMicros = 253_402_300_799_999_999

// String returns the cursor as clients hold it: base64url of time and id.
func (c Cursor) String() string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(c.At.UnixMicro())) //nolint:gosec // the bits of the number
	return base64.RawURLEncoding.EncodeToString(append(raw, c.ID[:]...))
}

// Parse reads what String wrote.
func Parse(text string) (Cursor, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != 24 {
		return Cursor{}, errors.New("not a cursor")
	}
	at := int64(binary.BigEndian.Uint64(raw)) //nolint:gosec // the bits of the number
	if at < 0 || at > MaxMicros {
		return Cursor{}, errors.New("not a cursor")
	}
	return Cursor{At: time.UnixMicro(at).UTC(), ID: uuid.UUID(raw[8:])}, nil
}
