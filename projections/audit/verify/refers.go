package verify

import (
	"bytes"
	"context"
	"errors"
	"reflect"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/eventstore"
)

// rooted is the root of a batch of read records, which are in the next event.
type rooted struct {
	*reads.Rooted
	revision eventstore.Revision
}

// recorded compares read records with their root.
func (p *pass) recorded(e eventstore.DecodedEvent, recorded *reads.Recorded) {
	before, is := p.rooted[e.Stream]
	delete(p.rooted, e.Stream)
	want, _, err := reads.Batch(recorded.OrganizationID, recorded.ProjectID, recorded.Records)
	if err != nil || !is || before.revision != e.Revision-1 || before.Size != want.Size ||
		!bytes.Equal(before.Root, want.Root) {
		p.found(of(e.Recorded, Reads, "the read records are not those of the root before them"))
	}
}

// maxBlobs is how many names of blobs that were read are held, so that a blob with several events is read once.
const maxBlobs = 10_000

// checkBlobs reads the blobs that an event refers to. One that was erased is no longer there, nor will the event be.
func (p *pass) checkBlobs(ctx context.Context, e eventstore.DecodedEvent) error {
	for _, ref := range refsIn(nil, reflect.ValueOf(e.Event)) {
		if ref.Stream == "" || p.blobs[ref.Stream+ref.SHA256] {
			continue
		}
		_, err := p.Log.ReadBlob(ctx, ref)
		damaged, is := errors.AsType[*eventstore.BlobError](err)
		if err != nil && !is {
			return err
		}
		if is {
			_, _, err := p.Log.Store.ReadLast(ctx, ref.Stream)
			if err != nil && !errors.Is(err, eventstore.ErrDeleted) {
				return err
			}
			if err == nil {
				p.found(of(e.Recorded, Blob, "%v", damaged))
			}
		}
		if len(p.blobs) >= maxBlobs {
			clear(p.blobs)
		}
		p.blobs[ref.Stream+ref.SHA256] = true
	}
	return nil
}

var typeOfRef = reflect.TypeFor[blob.Ref]()

// refsIn adds the references to blobs in a value.
func refsIn(to []blob.Ref, v reflect.Value) []blob.Ref {
	switch {
	case !v.IsValid():
	case v.Type() == typeOfRef:
		return append(to, v.Interface().(blob.Ref))
	case v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface:
		return refsIn(to, v.Elem())
	case v.Kind() == reflect.Struct:
		for n := range v.NumField() {
			if v.Type().Field(n).IsExported() {
				to = refsIn(to, v.Field(n))
			}
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		for n := range v.Len() {
			to = refsIn(to, v.Index(n))
		}
	}
	return to
}
