package pipeline

import (
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/cut"
	"github.com/annals-project/annals/internal/runtest"
)

// hide writes metadata of a stream as an operator of the store can, and waits until the stream shows nothing.
func (w *harness) hide(name, fields string) {
	w.t.Helper()
	w.metadata(name, fields)
	direct := w.store.(*cut.Store).Store // restores nothing
	w.until("the stream shows nothing", func() bool {
		_, ok, err := direct.ReadLast(w.t.Context(), name)
		return err == nil && !ok
	})
}

// metadata writes metadata of a stream.
func (w *harness) metadata(name, fields string) {
	w.t.Helper()
	at, metadata := eventstore.NoStream, "$$"+name
	last, ok, err := w.store.ReadLast(w.t.Context(), metadata)
	if runtest.Must(w.t, err); ok {
		at = last.Revision
	}
	_, err = w.store.Append(w.t.Context(), metadata, at, []eventstore.Proposed{
		{ID: uuid.New(), Type: eventstore.MetadataType, Data: []byte(fields)},
	})
	runtest.Must(w.t, err)
}

// Somebody soft-deletes, truncates or ages a stream of ours. Sends to it complete, and it can be deleted and erased.
func TestCut_GoesOn(t *testing.T) {
	t.Parallel()
	w := newNodeHarness(t)
	for name, fields := range map[string]string{
		"soft-deleted": `{"$tb":9223372036854775807}`, "truncated": `{"$tb":90}`, "aged": `{"$maxAge":1}`,
	} {
		for _, category := range []string{stream.DataPoint, stream.Memory} {
			t.Run(name+" "+category, func(t *testing.T) {
				w.part(t)
				point := stream.DataPointID(w.call.Principal.Project.Namespace, "a")
				send := func(text string) {
					t.Helper()
					r := w.ingest(item("a", text))
					w.until(text+" is completed", func() bool {
						var phase string
						err := w.db.QueryRow(t.Context(), `select phase from datapoints.sends where id = $1`, r).Scan(&phase)
						return err == nil && phase == "indexed"
					})
				}
				send("one")
				send("two")
				w.hide(stream.Name(category, point), fields)
				send("three")
				send("four")
				w.hide(stream.Name(category, point), fields)
				w.remove("a")
				done, err := w.finisher.EraseNow(t.Context())
				runtest.Must(t, err)
				if done.Left.Deletions != 0 {
					t.Errorf("left %+v", done.Left)
				}
			})
		}
	}
}
