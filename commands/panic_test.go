package commands_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
)

// poisoned is a store that panics at the last event of a data point.
type poisoned struct{ eventstore.Store }

func (p poisoned) ReadLast(ctx context.Context, name string) (eventstore.Recorded, bool, error) {
	if strings.HasPrefix(name, stream.DataPoint+"-") {
		panic("poisoned")
	}
	return p.Store.ReadLast(ctx, name)
}

// A panic on one of many streams is an error of the call. It does not end the process.
func TestService_PanicOnAStream(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("a", "one"), "")
	_, err := fixtureOver(t, poisoned{w.store}).DeleteDataPoints(t.Context(), w.call, []string{"a", "b"})
	if _, ok := errors.AsType[*panics.Error](err); !ok {
		t.Fatalf("error %v, want the panic", err)
	}
	if _, err := w.DeleteDataPoints(t.Context(), w.call, []string{"a"}); err != nil {
		t.Error(err)
	}
}
