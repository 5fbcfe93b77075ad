package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
)

// refsOf lists the blobs that an event refers to.
func refsOf(e event.Event) (refs []blob.Ref) {
	add := func(list ...*blob.Ref) {
		for _, ref := range list {
			if ref != nil {
				refs = append(refs, *ref)
			}
		}
	}
	switch e := e.(type) {
	case *identity.TraitsReplaced:
		add(e.Record.Traits.Blob)
	case *identity.TraitsMerged:
		add(e.Record.Traits.Blob, e.Patch.Blob)
	case *identity.BulkRowApplied:
		if e.Record != nil {
			add(e.Record.Traits.Blob)
		}
	case *identity.BulkAccepted:
		add(&e.Rows)
	case *audience.Put:
		add(e.MembersBlob, e.RuleBlob)
	}
	return refs
}

// readBlob reads a blob. ok is false if it is missing or damaged.
func (f *fold) readBlob(ctx context.Context, ref blob.Ref, what string) (data []byte, ok bool, err error) {
	data, err = f.projector.blobs.ReadBlob(ctx, ref)
	if _, lost := errors.AsType[*eventstore.BlobError](err); lost {
		f.projector.logger.InfoContext(ctx, "blob of the directory is missing or damaged",
			"what", what, "blob", ref.Stream, "err", err)
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %s of %s: %w", what, ref.Stream, err)
	}
	return data, true, nil
}

// readJSON decodes a blob into a value. If the blob is missing or damaged, the value stays
// unchanged.
func (f *fold) readJSON(ctx context.Context, ref blob.Ref, what string, into any) error {
	data, ok, err := f.readBlob(ctx, ref, what)
	if err != nil || !ok {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("decode %s of %s: %w", what, ref.Stream, err)
	}
	return nil
}
