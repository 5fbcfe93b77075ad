package eventstoretest

import (
	"testing"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/eventstore"
)

// Codec knows every event of the domain.
func Codec(t testing.TB) *eventstore.Codec {
	t.Helper()
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	return codec
}
