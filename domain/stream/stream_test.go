package stream_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
)

// Another application may write streams whose names begin like ours. Only whole names of ours have a category.
func TestCategory(t *testing.T) {
	id := uuid.New()
	address, err := stream.NewNamespaces(make([]byte, 32)).AddressName("ana@acme.example")
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]string{
		stream.Registry: stream.Registry, stream.Pipeline: stream.Pipeline, address: stream.Address,
		stream.UsageName(id, "2026-11"): stream.Usage, stream.BlobName(id, uuid.New()): stream.Blob,
		stream.RecordsName(stream.Name(stream.DataPoint, id)): stream.Records,
	}
	for _, category := range []string{
		stream.Organization, stream.Person, stream.Project, stream.Identity, stream.Bulk, stream.Audiences,
		stream.DataPoint, stream.Memory, stream.Ingestion, stream.Deletion, stream.Erasure,
	} {
		ours[stream.Name(category, id)] = category
	}
	for name, want := range ours {
		if got := stream.Category(name); got != want {
			t.Errorf("category of %s is %q", name, got)
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
		}
	}
	for name, want := range map[string]string{"orders-1": "orders", "orders": "orders", "": "", "$system": "$system"} {
		if got := stream.Category(name); got != want {
			t.Errorf("category of %s is %q", name, got)
		}
	}
}
