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
	of := func(n stream.Namespaces, stored stream.Namespace) uuid.UUID {
		t.Helper()
		got, err := n.Of(stored)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	keyed := of(one, stream.Namespace{ID: id, Keyed: true})
	if again := of(one, stream.Namespace{ID: id, Keyed: true}); again != keyed {
		t.Errorf("the same namespace is %s and %s", keyed, again)
	}
	for name, got := range map[string]uuid.UUID{
		"another hash key": of(two, stream.Namespace{ID: id, Keyed: true}), "another project": of(one, stream.Namespace{ID: other, Keyed: true}), "no key": id,
	} {
		if got == keyed {
			t.Errorf("%s gives the same namespace", name)
		}
	}
	for _, n := range []stream.Namespaces{one, two, {}} {
		if got := of(n, stream.Namespace{ID: id}); got != id {
			t.Errorf("a namespace of an earlier version is %s, want %s", got, id)
		}
	}
	if got, err := (stream.Namespaces{}).Of(stream.Namespace{ID: id, Keyed: true}); !errors.Is(err, stream.ErrNoHashKey) ||
		got != uuid.Nil {
		t.Errorf("without a hash key: %s, %v", got, err)
	}
}

// TestNamespaces_Pinned holds the derivation: another one would lose every id of every keyed
// project.
func TestNamespaces_Pinned(t *testing.T) {
	n, err := stream.NewNamespaces([]byte("0123456789abcdef0123456789abcdef")).
		Of(stream.Namespace{ID: uuid.MustParse("8fdbb345-5e46-4611-85f4-314fdff5910c"), Keyed: true})
	if err != nil || n.String() != "0f3dd036-7a79-2e71-6b2c-f9c745964dbc" {
		t.Errorf("namespace %s, %v", n, err)
	}
}
