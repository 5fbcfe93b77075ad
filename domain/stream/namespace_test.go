package stream_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
)

func TestNamespaces_Of(t *testing.T) {
	id, other := uuid.New(), uuid.New()
	one, two := stream.NewNamespaces(bytes.Repeat([]byte{1}, 32)), stream.NewNamespaces(bytes.Repeat([]byte{2}, 32))
	of := func(n stream.Namespaces, stored uuid.UUID) uuid.UUID {
		t.Helper()
		got, err := n.Of(stored)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	keyed := of(one, id)
	if again := of(one, id); again != keyed {
		t.Errorf("the same namespace is %s and %s", keyed, again)
	}
	for name, got := range map[string]uuid.UUID{
		"another hash key": of(two, id), "another project": of(one, other), "no key": id,
	} {
		if got == keyed {
			t.Errorf("%s gives the same namespace", name)
		}
	}
	if got, err := (stream.Namespaces{}).Of(id); !errors.Is(err, stream.ErrNoHashKey) ||
		got != uuid.Nil {
		t.Errorf("without a hash key: %s, %v", got, err)
	}
}

// TestNamespaces_Pinned holds the derivation: another one would lose every id of every
// project.
func TestNamespaces_Pinned(t *testing.T) {
	n, err := stream.NewNamespaces([]byte("0123456789abcdef0123456789abcdef")).
		Of(uuid.MustParse("8fdbb345-5e46-4611-85f4-314fdff5910c"))
	if err != nil || n.String() != "0f3dd036-7a79-2e71-6b2c-f9c745964dbc" {
		t.Errorf("namespace %s, %v", n, err)
	}
}
