package checkpoints_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func newStore(t *testing.T) checkpoints.Store {
	t.Helper()
	db := pgtest.Database(t)
	runtest.Must(t, ops.Migrate(t.Context(), db, uuid.Nil))
	return checkpoints.Store{DB: db, Sealer: sealer(t, 1)}
}

func sealer(t *testing.T, keys ...byte) *secret.Sealer {
	t.Helper()
	var all [][]byte
	for _, key := range keys {
		all = append(all, bytes.Repeat([]byte{key}, secret.SealKeyBytes))
	}
	s, err := secret.NewSealer(all...)
	runtest.Must(t, err)
	return s
}

// A key is sealed for its row, sealed again with another first seal key, and is not opened by a stranger's.
func TestKeys_AreSealed(t *testing.T) {
	s := newStore(t)
	key := checkpoints.Key{ID: uuid.New(), Organization: uuid.New(), Origin: "o", Verifier: "v", Signer: "the private part"}
	runtest.Must(t, s.AddKey(t.Context(), key))
	var found bool
	runtest.Must(t, s.DB.QueryRow(t.Context(), `select exists (select from ops.audit_keys k
		where strpos(k::text, encode('the private part', 'hex')) > 0 or strpos(k::text, 'private') > 0)`).Scan(&found))
	if found {
		t.Error("the private part is stored as it is")
	}
	done, unopened, err := checkpoints.SealedTable().Reseal(t.Context(), s.DB, sealer(t, 2, 1))
	if done != 1 || unopened != 0 || err != nil {
		t.Errorf("sealed %d again, %d not: %v", done, unopened, err)
	}
	for with, want := range map[*secret.Sealer]string{sealer(t, 2): key.Signer, sealer(t, 1): ""} {
		s.Sealer = with
		keys, err := s.Keys(t.Context(), []uuid.UUID{key.Organization, uuid.New()})
		key := key
		key.Signer = want
		if diff := cmp.Diff(map[uuid.UUID][]checkpoints.Key{key.Organization: {key}}, keys); diff != "" || err != nil {
			t.Errorf("%s, %v", diff, err)
		}
	}
}

// A smaller tree takes the place of no larger one.
func TestKeepSigned_NeverSmaller(t *testing.T) {
	s := newStore(t)
	one, two := uuid.New(), uuid.New()
	mark := func(organization uuid.UUID, size int64) checkpoints.Signed {
		return checkpoints.Signed{Organization: organization, Size: size, Root: [32]byte{byte(size)}}
	}
	for _, step := range []struct {
		keep []checkpoints.Signed
		may  map[uuid.UUID]bool
	}{
		{[]checkpoints.Signed{mark(one, 5), mark(two, 5)}, map[uuid.UUID]bool{one: true, two: true}},
		{[]checkpoints.Signed{mark(one, 4), mark(two, 6)}, map[uuid.UUID]bool{two: true}},
		{[]checkpoints.Signed{mark(one, 5)}, map[uuid.UUID]bool{one: true}},
	} {
		may, err := s.KeepSigned(t.Context(), step.keep)
		if diff := cmp.Diff(step.may, may); diff != "" || err != nil {
			t.Errorf("%s, %v", diff, err)
		}
	}
	got, err := s.Signed(t.Context(), []uuid.UUID{one, two})
	want := map[uuid.UUID]checkpoints.Signed{one: mark(one, 5), two: mark(two, 6)}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
}

func TestCopies(t *testing.T) {
	s := newStore(t)
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	done := checkpoints.Copy{Organization: uuid.New(), Origin: "a", Size: 7, Tiles: 7, Note: "n"}
	late := checkpoints.Copy{Organization: uuid.New(), Origin: "b", Since: at}
	runtest.Must(t, s.KeepCopies(t.Context(), "x", []checkpoints.Copy{done, late}))
	later := late
	later.Since = at.Add(time.Hour)
	runtest.Must(t, s.KeepCopies(t.Context(), "y", []checkpoints.Copy{later}))
	waiting, err := s.Waiting(t.Context(), []string{"x", "y", "z"})
	if diff := cmp.Diff(map[string]time.Time{"x": at, "y": later.Since}, waiting); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
	late.Size, late.Since = 3, time.Time{}
	runtest.Must(t, s.KeepCopies(t.Context(), "x", []checkpoints.Copy{late}))
	got, err := s.Copies(t.Context(), "x", []uuid.UUID{done.Organization, late.Organization, uuid.New()})
	want := map[uuid.UUID]checkpoints.Copy{done.Organization: done, late.Organization: late}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
	placed, err := s.Placed(t.Context(), []uuid.UUID{late.Organization, uuid.New()})
	of := []checkpoints.Placed{
		{Copy: checkpoints.Copy{Organization: late.Organization, Origin: "b", Size: 3}, Place: "x"},
		{Copy: checkpoints.Copy{Organization: late.Organization, Origin: "b", Since: later.Since}, Place: "y"},
	}
	if diff := cmp.Diff(map[uuid.UUID][]checkpoints.Placed{late.Organization: of}, placed); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
	if waiting, err := s.Waiting(t.Context(), []string{"x"}); len(waiting) > 0 || err != nil {
		t.Errorf("%v wait, %v", waiting, err)
	}
}

// One process has a turn until it passes it, or the turn is over.
func TestTurn(t *testing.T) {
	s := newStore(t)
	one := checkpoints.Turn{Task: "sign", Holder: uuid.New(), Last: time.Hour}
	two := checkpoints.Turn{Task: "sign", Holder: uuid.New(), Last: -time.Second}
	take := func(turn checkpoints.Turn, want bool) {
		t.Helper()
		if is, err := s.Take(t.Context(), turn); is != want || err != nil {
			t.Errorf("taken %t, want %t: %v", is, want, err)
		}
	}
	take(one, true)
	take(two, false)
	take(one, true)
	runtest.Must(t, s.Pass(t.Context(), two)) // it has none
	take(two, false)
	runtest.Must(t, s.Pass(t.Context(), one))
	take(two, true)
	take(one, true) // that of the other is over
}

func TestForget(t *testing.T) {
	s := newStore(t)
	of := []uuid.UUID{uuid.New()}
	runtest.Must(t, s.AddKey(t.Context(), checkpoints.Key{ID: uuid.New(), Organization: of[0], Signer: "s"}))
	_, err := s.KeepSigned(t.Context(), []checkpoints.Signed{{Organization: of[0], Size: 1}})
	runtest.Must(t, err)
	runtest.Must(t, checkpoints.KeepKeysOf(t.Context(), s.DB, []string{s.Sealer.First()}))
	if keys, err := s.Keys(t.Context(), of); len(keys) != 1 || err != nil {
		t.Errorf("%d keys that can be opened are left, %v", len(keys), err)
	}
	runtest.Must(t, checkpoints.Forget(t.Context(), s.DB))
	keys, err := s.Keys(t.Context(), of)
	runtest.Must(t, err)
	signed, err := s.Signed(t.Context(), of)
	if len(keys)+len(signed) > 0 || err != nil {
		t.Errorf("%v and %v are left, %v", keys, signed, err)
	}
}
