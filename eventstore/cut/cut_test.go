package cut_test

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/cut"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

// A stream of which somebody hid all events, or the first ones, is read whole. That of an identity stays truncated, as
// does a stream of somebody else.
func TestStore_Read(t *testing.T) {
	t.Parallel()
	n := nodetest.Start(t, node.Config{Dir: filepath.Join(t.TempDir(), "log")})
	direct := nodetest.Open(t, nodetest.ConfigOf(n.Connection()))
	store := cut.New(direct, slog.New(slog.DiscardHandler))
	write := func(name string, at eventstore.Revision, kind, data string, count int) {
		t.Helper()
		events := make([]eventstore.Proposed, count)
		for i := range events {
			events[i] = eventstore.Proposed{ID: uuid.New(), Type: kind, Data: []byte(data), Meta: []byte(`{}`)}
		}
		_, err := direct.Append(t.Context(), name, at, events)
		runtest.Must(t, err)
	}
	read := func(name string) int {
		t.Helper()
		events, err := store.Read(t.Context(), name, 0, eventstore.Forwards, 10)
		runtest.Must(t, err)
		return len(events)
	}
	const all = `{"$tb":9223372036854775807}`
	for _, c := range []struct {
		name, fields string
		events       int
	}{
		{stream.Name(stream.Project, uuid.New()), all, 3},
		{stream.Name(stream.Project, uuid.New()), `{"$tb":2}`, 3},
		{stream.Name(stream.Organization, uuid.New()), `{"$maxCount":1}`, 3},
		{stream.Name(stream.Identity, uuid.New()), `{"$tb":2}`, 1},
		{"orders-1", all, 0},
		{"orders-2", `{"$tb":2}`, 1},
	} {
		write(c.name, eventstore.NoStream, "tested.v1", `{}`, 3)
		write("$$"+c.name, eventstore.NoStream, eventstore.MetadataType, c.fields, 1)
		runtest.Await(t, "the events are hidden", func() bool {
			seen, err := direct.Read(t.Context(), c.name, 0, eventstore.Forwards, 10)
			return err == nil && len(seen) < 3
		})
		if got := read(c.name); got != c.events {
			t.Errorf("%s of %s: %d events are read, want %d", c.fields, c.name, got, c.events)
		}
	}
	// The stream of a send reads as empty until an append finds that it is not.
	send := stream.Name(stream.Ingestion, uuid.New())
	write(send, eventstore.NoStream, "tested.v1", `{}`, 3)
	write("$$"+send, eventstore.NoStream, eventstore.MetadataType, `{"$tb":9}`, 1)
	runtest.Await(t, "the events are hidden", func() bool { return read(send) == 0 })
	_, err := store.Append(t.Context(), send, eventstore.NoStream, []eventstore.Proposed{
		{ID: uuid.New(), Type: "tested.v1", Data: []byte(`{}`), Meta: []byte(`{}`)},
	})
	if got := read(send); !errors.Is(err, eventstore.ErrConflict) || got != 3 {
		t.Errorf("%v, then %d events are read", err, got)
	}
	if named := store.Restored(); len(named) != 4 {
		t.Errorf("restored %v", named)
	}
}
