package erasure

import (
	"context"
	"slices"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/eventstore"
)

// refers reports whether any event of a stream refers to a blob.
func (s Streams) refers(ctx context.Context, name, blobName string) (found bool, err error) {
	err = s.Journal.Scan(ctx, name, 0, func(f eventstore.DecodedEvent) (bool, error) {
		found = slices.Contains(blobsOf(f), blobName)
		return !found, nil
	})
	return found, err
}

// blobsOf returns the streams of the blobs that an event refers to.
func blobsOf(f eventstore.DecodedEvent) []string {
	var refs []*blob.Ref
	switch e := f.Event.(type) {
	case *datapoint.RevisionAccepted:
		refs = append(refs, e.Content.Blob)
		if e.Metadata != nil {
			refs = append(refs, e.Metadata.Blob)
		}
	case *memory.Derived:
		refs = append(refs, e.Blob)
	case *identity.TraitsReplaced:
		refs = append(refs, e.Record.Traits.Blob)
	case *identity.TraitsMerged:
		refs = append(refs, e.Record.Traits.Blob, e.Patch.Blob)
	case *identity.BulkRowApplied:
		if e.Record != nil {
			refs = append(refs, e.Record.Traits.Blob)
		}
	case *audience.Put:
		refs = append(refs, e.MembersBlob, e.RuleBlob)
	}
	var names []string
	for _, ref := range refs {
		if ref != nil {
			names = append(names, ref.Stream)
		}
	}
	return names
}
