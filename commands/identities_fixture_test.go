package commands_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/work"
)

// logDirectory implements commands.Directory by a fold of the log, up to its head.
type logDirectory struct{ log *commands.Journal }

func (d logDirectory) fold(ctx context.Context, see func(eventstore.DecodedEvent)) error {
	records, err := d.log.Store.ReadAll(ctx, 0, 1<<20)
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.System() {
			continue
		}
		f := d.log.Codec.DecodeRecorded(r)
		if f.Err != nil {
			return f.Err
		}
		see(f)
	}
	return nil
}

func (d logDirectory) RecordHeads(
	ctx context.Context, _ auth.Project, ids []uuid.UUID,
) (map[uuid.UUID]work.RecordHead, error) {
	all := map[uuid.UUID]work.RecordHead{}
	err := d.fold(ctx, func(f eventstore.DecodedEvent) {
		if stream.Category(f.Stream) == stream.Identity {
			id := stream.Owner(f.Stream)
			all[id] = work.RecordHead{Revision: f.Revision, Record: identity.Evolve(all[id].Record, f.Event)}
		}
	})
	known := map[uuid.UUID]work.RecordHead{}
	for _, id := range ids {
		if at, ok := all[id]; ok {
			known[id] = at
		}
	}
	return known, err
}

func (d logDirectory) OpenBulks(ctx context.Context, project auth.Project, ids []uuid.UUID) ([]uuid.UUID, error) {
	asked, open := map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
	for _, id := range ids {
		asked[id] = true
	}
	err := d.fold(ctx, func(f eventstore.DecodedEvent) {
		switch e := f.Event.(type) {
		case *identity.BulkAccepted:
			for _, target := range e.Targets {
				if asked[target.IdentityID] && e.ProjectID == project.ID {
					open[stream.Owner(f.Stream)] = true
				}
			}
		case *identity.BulkFannedOut:
			delete(open, stream.Owner(f.Stream))
		}
	})
	list := make([]uuid.UUID, 0, len(open))
	for id := range open {
		list = append(list, id)
	}
	return list, err
}

// later returns the call of the same caller some seconds later.
func (w *fixture) later(seconds int) commands.Call {
	call := w.call
	call.RequestID, call.ReceivedAt = uuid.New(), w.call.ReceivedAt.Add(time.Duration(seconds)*time.Second)
	return call
}

func (w *fixture) recordID(name string) uuid.UUID {
	return stream.IdentityID(w.call.Principal.Project.Namespace, name)
}

// record returns the directory record of an identity, folded from its stream, with all traits. It
// is nil if there is none.
func (w *fixture) record(name string) (*identity.Record, map[string]string) {
	w.t.Helper()
	var record *identity.Record
	for _, f := range w.identityEvents(name) {
		record = identity.Evolve(record, f.Event)
	}
	if record == nil {
		return nil, nil
	}
	if record.Traits.Blob == nil {
		return record, record.Traits.Inline
	}
	return record, w.blobTraits(record)
}

func (w *fixture) identityEvents(name string) []eventstore.DecodedEvent {
	w.t.Helper()
	facts, err := w.log.ReadFrom(w.t.Context(), stream.Name(stream.Identity, w.recordID(name)), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return facts
}

func (w *fixture) identityTypes(name string) []string {
	var types []string
	for _, f := range w.identityEvents(name) {
		types = append(types, f.Type)
	}
	return types
}

func (w *fixture) putIdentity(call commands.Call, name string, traits map[string]string) commands.IdentityReceipt {
	w.t.Helper()
	r, err := w.PutIdentity(w.t.Context(), call, name, traits)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *fixture) wantTraits(t *testing.T, name string, want map[string]string) *identity.Record {
	t.Helper()
	record, traits := w.record(name)
	if (record == nil) != (want == nil) || !maps.Equal(traits, want) {
		t.Errorf("%s has traits %v, want %v", name, traits, want)
	}
	return record
}

func rows(pairs ...any) []identity.Row {
	var list []identity.Row
	for i := 0; i < len(pairs); i += 2 {
		traits, _ := pairs[i+1].(map[string]string)
		list = append(list, identity.Row{Identity: pairs[i].(string), Traits: traits})
	}
	return list
}

type traits = map[string]string
