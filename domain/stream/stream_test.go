package stream_test

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/runtest"
)

// Another application may write streams whose names begin like ours. Only whole names of ours have a category.
func TestCategory(t *testing.T) {
	id := uuid.New()
	address, err := stream.NewNamespaces(make([]byte, 32)).AddressName("ana@acme.example")
	runtest.Must(t, err)
	ours := map[string]string{
		stream.Registry: stream.Registry, stream.Pipeline: stream.Pipeline, address: stream.Address,
		stream.UsageName(id, "2026-11"): stream.Usage, stream.BlobName(id, uuid.New()): stream.Blob,
		stream.RecordsName(stream.Name(stream.DataPoint, id)):            stream.Records,
		stream.ReadsName(id, "2026-11-05"):                               stream.Reads,
		stream.RecordsName(stream.ReadsName(id, "2026-11-05")):           stream.Records,
		stream.RecordsName(stream.Name(stream.DataPoint, id)):            stream.Records,
		stream.VisitsName(id, uuid.New(), "2026-11"):                     stream.Visits,
		stream.VisitsName(id, uuid.Nil, "2026-11"):                       stream.Visits,
		stream.RecordsName(stream.VisitsName(id, uuid.New(), "2026-11")): stream.Records,
		stream.RecordsName(stream.VisitsName(id, uuid.Nil, "2026-11")):   stream.Records,
	}
	for _, category := range []string{
		stream.Organization, stream.Person, stream.Offer, stream.Project, stream.Identity, stream.Bulk, stream.Audiences,
		stream.DataPoint, stream.Memory, stream.Ingestion, stream.Deletion, stream.Erasure, stream.Audit,
	} {
		ours[stream.Name(category, id)] = category
	}
	for name, want := range ours {
		if got := stream.Category(name); got != want {
			t.Errorf("category of %s is %q", name, got)
		}
		if !stream.IsOurs(name) {
			t.Errorf("%s is not ours", name)
		}
		foreign := []string{name + "-1", name + "x", strings.ToUpper(name)[:len(want)] + name[len(want):] + "-"}
		if len(name) > len(want) {
			foreign = append(foreign, want, want+"-", want+"-1", name[:len(name)-1], want+"-"+name[len(want)+1:]+"\n",
				want+strings.ToUpper(name[len(want):]))
		}
		for _, other := range foreign {
			if got := stream.Category(other); got == want && other != name {
				t.Errorf("category of %s is %q", other, got)
			}
			if other != name && stream.IsOurs(other) {
				t.Errorf("%s is ours", other)
			}
		}
	}
	for name, want := range map[string]string{"orders-1": "orders", "orders": "orders", "": "", "$system": "$system"} {
		if got := stream.Category(name); got != want {
			t.Errorf("category of %s is %q", name, got)
		}
		if stream.IsOurs(name) {
			t.Errorf("%s is ours", name)
		}
	}
}

// A category whose form is not known here would have the streams of other applications.
func TestCategory_KnowsTheFormOfEach(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "stream.go", nil, 0)
	runtest.Must(t, err)
	categories := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || len(spec.Values) != 1 {
			return true
		}
		literal, is := spec.Values[0].(*ast.BasicLit)
		if !is || literal.Kind != token.STRING {
			return true
		}
		category, err := strconv.Unquote(literal.Value)
		runtest.Must(t, err)
		categories++
		if got := stream.Category(category + "-1"); got != "" {
			t.Errorf("category of %s-1 is %q", category, got)
		}
		return true
	})
	if categories < 18 {
		t.Errorf("%d categories, want 18 or more", categories)
	}
}

// The person and the month of visits can be read from the name of their stream, and each such stream keeps its records
// in a stream of its own.
func TestVisitor(t *testing.T) {
	of, person := uuid.New(), uuid.New()
	records := map[string]bool{}
	for _, who := range []uuid.UUID{person, uuid.Nil} {
		for _, month := range []string{"2026-11", "2026-12"} {
			name := stream.VisitsName(of, who, month)
			if got, in := stream.Visitor(name); got != who || in != month || stream.Owner(name) != of {
				t.Errorf("%s is of %s in %s", name, got, in)
			}
			records[stream.RecordsName(name)] = true
		}
	}
	if len(records) != 4 {
		t.Errorf("the records of four streams are in %d", len(records))
	}
}

func TestNamespaces_Of(t *testing.T) {
	id, other := uuid.New(), uuid.New()
	one, two := stream.NewNamespaces(bytes.Repeat([]byte{1}, 32)), stream.NewNamespaces(bytes.Repeat([]byte{2}, 32))
	of := func(n stream.Namespaces, stored uuid.UUID) uuid.UUID {
		t.Helper()
		got, err := n.Of(stored)
		runtest.Must(t, err)
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
