package pgtest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/pg/pgtest"
)

// A uuid.UUID, a pointer to one and lists of them are what they were, in each form in which a statement takes and
// returns them.
func TestUUIDs(t *testing.T) {
	db := pgtest.Database(t)
	type row struct {
		One, Null      uuid.UUID
		Pointer, None  *uuid.UUID
		List           []uuid.UUID
		Text           string
		Nullable, Gone uuid.NullUUID
	}
	id, other := uuid.New(), uuid.New()
	want := row{
		One: id, Null: other, Pointer: &other, List: []uuid.UUID{id, other}, Text: id.String(),
		Nullable: uuid.NullUUID{UUID: id, Valid: true},
	}
	got := row{Null: other} // a null leaves it
	err := db.QueryRow(t.Context(), `select $1::uuid, null::uuid, $2::uuid, $3::uuid, $4::uuid[], $1::uuid::text, $5::uuid, $6::uuid`,
		id, &other, (*uuid.UUID)(nil), []uuid.UUID{id, other}, want.Nullable, uuid.NullUUID{}).Scan(
		&got.One, &got.Null, &got.Pointer, &got.None, &got.List, &got.Text, &got.Nullable, &got.Gone)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var one any
	if err := db.QueryRow(t.Context(), `select $1::uuid`, id).Scan(&one); err != nil || one != any(id) {
		t.Errorf("%v (%T), %v", one, one, err)
	}
	if err := db.QueryRow(t.Context(), `select 'no uuid'`).Scan(&got.One); err == nil {
		t.Error("a text is read as a uuid")
	}
}
