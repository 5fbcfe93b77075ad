package table

import (
	"reflect"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// kind is how the fields of a type become the array of a column.
type kind struct {
	pgTypes string // separated by spaces
	array   toArray
	// orNull makes null of zero values. It is nil if no column needs that.
	orNull toArray
	zero   string // the zero value in SQL
}

// toArray returns the array of the fields with an index.
type toArray func(rows []reflect.Value, index []int) any

// kindOf returns the kind of the fields of a type.
func kindOf(t reflect.Type) (k kind, found bool) {
	if k, found = byType[t]; !found {
		k, found = byKind[t.Kind()]
	}
	return k, found
}

var (
	byType = map[reflect.Type]kind{
		reflect.TypeFor[uuid.UUID](): {
			pgTypes: "uuid", array: arrayOf(value(fromUUID)), orNull: arrayOf(orNull(value(fromUUID))),
			zero: "'" + uuid.Nil.String() + "'",
		},
		reflect.TypeFor[time.Time]():  {pgTypes: "timestamptz", array: arrayOf(value(fromTime))},
		reflect.TypeFor[[]byte]():     {pgTypes: "bytea", array: flatArrayOf(reflect.Value.Bytes)},
		reflect.TypeFor[*uuid.UUID](): {pgTypes: "uuid", array: arrayOf(pointer(fromUUID))},
		reflect.TypeFor[*time.Time](): {pgTypes: "timestamptz", array: arrayOf(pointer(fromTime))},
		reflect.TypeFor[*string]():    {pgTypes: "text", array: arrayOf(pointer(fromString))},
		reflect.TypeFor[*int32]():     {pgTypes: "int", array: arrayOf(pointer(fromInt[int32]))},
		reflect.TypeFor[*int64]():     {pgTypes: "bigint", array: arrayOf(pointer(fromInt[int64]))},
	}
	byKind = map[reflect.Kind]kind{
		reflect.Bool:   {pgTypes: "boolean", array: arrayOf(boolOf)},
		reflect.Int:    {pgTypes: "int bigint", array: arrayOf(intOf)},
		reflect.Int16:  {pgTypes: "smallint", array: arrayOf(intOf)},
		reflect.Int64:  {pgTypes: "int bigint", array: arrayOf(intOf)},
		reflect.Uint64: {pgTypes: "bigint", array: arrayOf(uintOf)},
		reflect.String: {pgTypes: "text", array: arrayOf(stringOf), orNull: arrayOf(orNull(stringOf)), zero: "''"},
		// pgx encodes and decodes JSON.
		reflect.Slice:   {pgTypes: "jsonb", array: flatArrayOf(reflect.Value.Interface)},
		reflect.Pointer: {pgTypes: "jsonb", array: flatArrayOf(reflect.Value.Interface)},
	}
)

// values is an array whose elements pgx encodes in place. In pgtype.FlatArray each element would be copied to the heap,
// and a named type or a pointer be looked up by reflection.
type values[V any] []V

func (a values[V]) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(len(a)), LowerBound: 1}}
}
func (a values[V]) Index(i int) any { return &a[i] }
func (a values[V]) IndexType() any  { return new(V) }

func arrayOf[V any](get func(reflect.Value) V) toArray {
	return func(rows []reflect.Value, index []int) any {
		array := make(values[V], len(rows))
		for i, row := range rows {
			array[i] = get(row.FieldByIndex(index))
		}
		return array
	}
}

func flatArrayOf[V any](get func(reflect.Value) V) toArray {
	return func(rows []reflect.Value, index []int) any {
		array := make(pgtype.FlatArray[V], len(rows))
		for i, row := range rows {
			array[i] = get(row.FieldByIndex(index))
		}
		return array
	}
}

// value reads a field of type T, pointer one of type *T, which is null if it is nil.
func value[T, V any](from func(T) V) func(reflect.Value) V {
	return func(v reflect.Value) V { return from(*v.Addr().Interface().(*T)) }
}

func pointer[T, V any](from func(T) V) func(reflect.Value) (value V) {
	return func(v reflect.Value) (value V) {
		if p := v.Interface().(*T); p != nil {
			value = from(*p)
		}
		return value
	}
}

// orNull returns the zero value, which is null, for a zero field.
func orNull[V any](get func(reflect.Value) V) func(reflect.Value) V {
	return func(v reflect.Value) (value V) {
		if !v.IsZero() {
			value = get(v)
		}
		return value
	}
}

func fromUUID(id uuid.UUID) pgtype.UUID        { return pgtype.UUID{Bytes: id, Valid: true} }
func fromTime(t time.Time) pgtype.Timestamptz  { return pgtype.Timestamptz{Time: t, Valid: true} }
func fromString(s string) pgtype.Text          { return pgtype.Text{String: s, Valid: true} }
func fromInt[I int32 | int64](i I) pgtype.Int8 { return pgtype.Int8{Int64: int64(i), Valid: true} }
func stringOf(v reflect.Value) pgtype.Text     { return fromString(v.String()) }
func boolOf(v reflect.Value) pgtype.Bool       { return pgtype.Bool{Bool: v.Bool(), Valid: true} }
func intOf(v reflect.Value) pgtype.Int8        { return fromInt(v.Int()) }
func uintOf(v reflect.Value) pgtype.Int8       { return fromInt(int64(v.Uint())) }
