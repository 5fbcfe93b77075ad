package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/internal/pg/pgtest"
	_ "github.com/annals-project/annals/internal/seedtest"
)

func sealKey(b byte) []byte { return bytes.Repeat([]byte{b}, SealKeyBytes) }

func sealer(t *testing.T, keys ...[]byte) *Sealer {
	t.Helper()
	s, err := NewSealer(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSealer_OpensWithItsKeyOnly(tt *testing.T) {
	s := sealer(tt, sealKey(1))
	rapid.Check(tt, func(t *rapid.T) {
		id, other := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")), uuid.New()
		clear := rapid.String().Draw(t, "clear")
		sealed, err := s.Seal(id, clear)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Open(id, sealed); err != nil || got != clear {
			t.Fatalf("opened %q, %v", got, err)
		}
		if _, err := s.Open(other, sealed); err == nil {
			t.Fatal("it opens for another key's id")
		}
		damaged := Sealed{Key: sealed.Key, Data: bytes.Clone(sealed.Data)}
		damaged.Data[rapid.IntRange(0, len(damaged.Data)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := s.Open(id, damaged); err == nil {
			t.Fatal("it opens although it was damaged")
		}
		short := Sealed{Key: sealed.Key, Data: sealed.Data[:rapid.IntRange(0, len(sealed.Data)-1).Draw(t, "length")]}
		if _, err := s.Open(id, short); err == nil {
			t.Fatal("it opens although it was cut")
		}
	})
}

func TestSealer_SeveralKeys(t *testing.T) {
	id := uuid.New()
	before, err := sealer(t, sealKey(1)).Seal(id, "svc_sk_clear")
	if err != nil {
		t.Fatal(err)
	}
	both := sealer(t, sealKey(2), sealKey(1))
	if got, err := both.Open(id, before); err != nil || got != "svc_sk_clear" {
		t.Errorf("opened %q, %v", got, err)
	}
	after, err := both.Seal(id, "svc_sk_clear")
	if err != nil {
		t.Fatal(err)
	}
	if after.Key != both.First() || after.Key == before.Key {
		t.Errorf("sealed with %q, before with %q", after.Key, before.Key)
	}
	if _, err := sealer(t, sealKey(1)).Open(id, after); !errors.Is(err, ErrSealKeyUnknown) {
		t.Errorf("the second key opens what the first one sealed: %v", err)
	}
}

func TestSealer_SameValueTwice(t *testing.T) {
	s, id := sealer(t, sealKey(1)), uuid.New()
	one, err := s.Seal(id, "svc_sk_clear")
	if err != nil {
		t.Fatal(err)
	}
	two, err := s.Seal(id, "svc_sk_clear")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(one.Data, two.Data) || bytes.Contains(one.Data, []byte("clear")) {
		t.Errorf("sealed %x and %x", one.Data, two.Data)
	}
}

func TestSealer_KeyLength(t *testing.T) {
	for name, keys := range map[string][][]byte{
		"none": {}, "too short": {make([]byte, 31)}, "too long": {make([]byte, 33)}, "a short one behind": {sealKey(1), make([]byte, 16)},
	} {
		if _, err := NewSealer(keys...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestMain(m *testing.M) { pgtest.Main(m) }

func reveals(t *testing.T, v Vault, id uuid.UUID, want string) {
	t.Helper()
	if got, ok, err := v.Reveal(t.Context(), id); err != nil || got != want || ok != (want != "") {
		t.Errorf("revealed %q, %v, %v, want %q", got, ok, err, want)
	}
}

func keep(t *testing.T, v Vault, id uuid.UUID, clear string) {
	t.Helper()
	if err := v.Keep(t.Context(), id, clear); err != nil {
		t.Fatal(err)
	}
}

func TestVault_ShowsItsSecrets(t *testing.T) {
	v := Vault{DB: pgtest.Database(t), Sealer: sealer(t, sealKey(1))}
	one, two := uuid.New(), uuid.New()
	keep(t, v, one, "svc_sk_one")
	keep(t, v, one, "svc_sk_another")
	keep(t, v, two, "svc_sk_two")
	reveals(t, v, one, "svc_sk_one")
	reveals(t, v, uuid.New(), "")
	if err := v.Drop(t.Context(), one, uuid.New()); err != nil {
		t.Fatal(err)
	}
	reveals(t, v, one, "")
	reveals(t, v, two, "svc_sk_two")
	var clear int
	if err := v.DB.QueryRow(t.Context(), `select count(*) from ops.sealed_keys k where k::text like '%svc_sk_%' or encode(k.sealed, 'escape') like '%svc_sk_%'`).Scan(&clear); err != nil ||
		clear != 0 {
		t.Errorf("%d rows hold a clear value, %v", clear, err)
	}
}

func TestVault_RotatedSealKeys(t *testing.T) {
	ctx, db := t.Context(), pgtest.Database(t)
	before := Vault{DB: db, Sealer: sealer(t, sealKey(1))}
	ids := make([]uuid.UUID, sealPage+1) // more than one page
	for i := range ids {
		ids[i] = uuid.New()
		keep(t, before, ids[i], fmt.Sprint("svc_sk_", i))
	}
	foreign := uuid.New()
	keep(t, Vault{DB: db, Sealer: sealer(t, sealKey(9))}, foreign, "svc_sk_foreign")

	for i, want := range []int{len(ids), 0} {
		done, unopened, err := VaultTable().Reseal(ctx, db, sealer(t, sealKey(2), sealKey(1)))
		if err != nil || done != want || unopened != 1 {
			t.Fatalf("time %d: %d resealed, %d unopened, %v", i, done, unopened, err)
		}
	}
	after := Vault{DB: db, Sealer: sealer(t, sealKey(2))}
	for i, id := range ids {
		reveals(t, after, id, fmt.Sprint("svc_sk_", i))
	}
	if _, _, err := after.Reveal(ctx, foreign); !errors.Is(err, ErrSealKeyUnknown) {
		t.Errorf("revealed under no key: %v", err)
	}
	reveals(t, Vault{DB: db, Sealer: sealer(t, sealKey(9))}, foreign, "svc_sk_foreign")
}

func TestVault_Tidy(t *testing.T) {
	v := Vault{DB: pgtest.Database(t), Sealer: sealer(t, sealKey(1))}
	alive, gone, young := uuid.New(), uuid.New(), uuid.New()
	for _, id := range []uuid.UUID{alive, gone, young} {
		keep(t, v, id, "svc_sk_"+id.String())
	}
	if _, err := v.DB.Exec(t.Context(), `update ops.sealed_keys set kept_at = kept_at - interval '2 hours' where key_id <> $1`, young); err != nil {
		t.Fatal(err)
	}
	live := func(_ context.Context, ids []uuid.UUID) (map[uuid.UUID]struct{}, error) {
		return map[uuid.UUID]struct{}{alive: {}}, nil
	}
	if dropped, err := v.Tidy(t.Context(), time.Hour, live); err != nil || dropped != 1 {
		t.Fatalf("dropped %d, %v", dropped, err)
	}
	reveals(t, v, alive, "svc_sk_"+alive.String())
	reveals(t, v, young, "svc_sk_"+young.String())
	reveals(t, v, gone, "")
	trouble := errors.New("no answer")
	failing := func(context.Context, []uuid.UUID) (map[uuid.UUID]struct{}, error) { return nil, trouble }
	if _, err := v.Tidy(t.Context(), time.Hour, failing); !errors.Is(err, trouble) {
		t.Errorf("error %v, want that of live", err)
	}
	reveals(t, v, alive, "svc_sk_"+alive.String())
}
