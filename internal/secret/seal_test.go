package secret

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
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
