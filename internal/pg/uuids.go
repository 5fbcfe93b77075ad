package pg

import (
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"
)

// uuidCodec reads and writes a uuid.UUID as the 16 bytes that it is. Without it pgx prefers the Scan method of
// uuid.UUID, for which it makes text of the bytes, and that took an eighth of the time of a recall.
type uuidCodec struct{ pgxuuid.UUIDCodec }

// registerUUIDs makes a connection take uuid.UUID.
func registerUUIDs(types *pgtype.Map) {
	pgxuuid.Register(types)
	one := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	types.RegisterType(one)
	types.RegisterType(&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{ElementType: one}})
}

// PlanScan implements pgtype.Codec.
func (c uuidCodec) PlanScan(types *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, is := target.(*uuid.UUID); is && format == pgtype.BinaryFormatCode {
		return scanUUID{}
	}
	return c.UUIDCodec.PlanScan(types, oid, format, target)
}

// PlanEncode implements pgtype.Codec.
func (c uuidCodec) PlanEncode(types *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, is := value.(uuid.UUID); is && format == pgtype.BinaryFormatCode {
		return encodeUUID{}
	}
	return c.UUIDCodec.PlanEncode(types, oid, format, value)
}

type scanUUID struct{}

// errUUID reports a value that does not fit a uuid.UUID.
var errUUID = errors.New("no uuid of 16 bytes")

// Scan implements pgtype.ScanPlan. A null leaves the target as it is, as uuid.UUID does.
func (scanUUID) Scan(src []byte, target any) error {
	if src == nil {
		return nil
	}
	id, is := target.(*uuid.UUID)
	if !is || len(src) != len(id) {
		return errUUID
	}
	copy(id[:], src)
	return nil
}

type encodeUUID struct{}

// Encode implements pgtype.EncodePlan.
func (encodeUUID) Encode(value any, buf []byte) ([]byte, error) {
	id, is := value.(uuid.UUID)
	if !is {
		return nil, errUUID
	}
	return append(buf, id[:]...), nil
}
