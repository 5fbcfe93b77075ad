package audit

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"
)

// Kept is the record of an event that leaves the log, with what a rebuild needs to put it where the
// event was.
type Kept struct {
	EventID uuid.UUID
	// Position is that of the event in the log. The commit and the prepare position of the store are
	// the same.
	Position uint64
	Record   Record
}

// KeptList is the records of consecutive events of one stream. It is stored as one text: base64 of
// 56 bytes for each event, which are its id, its position (8 bytes, big-endian) and its record.
type KeptList []Kept

const (
	idSize   = len(uuid.UUID{})
	keptSize = idSize + 8 + len(Record{})
)

// MarshalText implements encoding.TextMarshaler.
func (l KeptList) MarshalText() ([]byte, error) {
	raw := make([]byte, 0, len(l)*keptSize)
	for _, k := range l {
		raw = append(raw, k.EventID[:]...)
		raw = append(binary.BigEndian.AppendUint64(raw, k.Position), k.Record[:]...)
	}
	return base64.StdEncoding.AppendEncode(nil, raw), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *KeptList) UnmarshalText(text []byte) error {
	raw, err := base64.StdEncoding.AppendDecode(nil, text)
	if err == nil && len(raw)%keptSize != 0 {
		err = fmt.Errorf("%d bytes are not %d for each event", len(raw), keptSize)
	}
	if err != nil {
		return fmt.Errorf("list of kept records: %w", err)
	}
	*l = make(KeptList, 0, len(raw)/keptSize)
	for ; len(raw) > 0; raw = raw[keptSize:] {
		position := binary.BigEndian.Uint64(raw[idSize:])
		*l = append(*l, Kept{uuid.UUID(raw[:idSize]), position, Record(raw[idSize+8 : keptSize])})
	}
	return nil
}
