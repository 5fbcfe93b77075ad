package eventstoretest

import (
	"context"
	"testing"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

// Codec knows every event of the domain.
func Codec(t testing.TB) *eventstore.Codec {
	t.Helper()
	codec, err := eventstore.NewCodec(domain.Catalog)
	runtest.Must(t, err)
	return codec
}

// All returns every event of a log after a position.
func All(t testing.TB, store eventstore.Store, after eventstore.Position) (all []eventstore.Recorded) {
	t.Helper()
	for {
		page, err := store.ReadAll(context.WithoutCancel(t.Context()), after, 500)
		runtest.Must(t, err)
		if len(page) == 0 {
			return all
		}
		all, after = append(all, page...), page[len(page)-1].Position
	}
}
