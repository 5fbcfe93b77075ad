package datapoints_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/datapoints"
)

// Blobs of identities, bulk writes and audiences are swept only without a reference; the rows of a
// bulk write also once it is fanned out.
func TestBlobs_DirectoryReferences(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	ref := func(name string) *blob.Ref { return &blob.Ref{Stream: "blob-" + name} }
	begun := func(owner string, names ...string) {
		for _, name := range names {
			w.Append("blob-"+name, &blob.Opened{ProjectID: w.project, Owner: id(owner), Deadline: noon})
		}
	}
	add := func(family, owner string, e event.Event) { w.last = w.Append(stream.Name(family, id(owner)), e) }
	traits := func(name string) identity.Record { return identity.Record{Traits: identity.Traits{Blob: ref(name)}} }
	row := traits("row")

	begun("ana", "replaced", "patch", "merged", "row", "never")
	begun("bulk", "rows")
	begun("other bulk", "other rows")
	begun("project", "members", "rule")
	add(stream.Identity, "ana", &identity.Appeared{ProjectID: w.project, Identity: "ana"})
	add(stream.Identity, "ana", &identity.TraitsReplaced{ProjectID: w.project, Record: traits("replaced")})
	add(stream.Identity, "ana",
		&identity.TraitsMerged{ProjectID: w.project, Patch: identity.Patch{Blob: ref("patch")}, Record: traits("merged")})
	add(stream.Bulk, "bulk", &identity.BulkAccepted{ProjectID: w.project, Rows: *ref("rows")})
	add(stream.Bulk, "other bulk", &identity.BulkAccepted{ProjectID: w.project, Rows: *ref("other rows")})
	add(stream.Identity, "ana", &identity.BulkRowApplied{ProjectID: w.project, Record: &row})
	add(stream.Identity, "ben", &identity.BulkRowApplied{ProjectID: w.project, History: true})
	add(stream.Bulk, "bulk", &identity.BulkFannedOut{ProjectID: w.project})
	add(stream.Audiences, "project",
		&audience.Put{ProjectID: w.project, MembersBlob: ref("members"), RuleBlob: ref("rule")})
	add(stream.Audiences, "project", &audience.Recomputed{ProjectID: w.project})
	add(stream.Audiences, "project", &audience.Removed{ProjectID: w.project})
	add(stream.Identity, "ana", &identity.Removed{ProjectID: w.project})
	add(stream.Identity, "ana", &identity.Cleared{ProjectID: w.project})

	var single, twice [][]eventstore.DecodedEvent
	for _, f := range w.Facts {
		single = append(single, []eventstore.DecodedEvent{f})
		twice = append(twice, []eventstore.DecodedEvent{f}, []eventstore.DecodedEvent{f})
	}
	for name, pages := range map[string][][]eventstore.DecodedEvent{
		"one page": {w.Facts}, "single events": single, "each twice": twice,
	} {
		err := projectiontest.Inspect(t.Context(), w.Queries.DB, datapoints.New(nil), pages, func(tx pgx.Tx) error {
			rows, err := tx.Query(t.Context(), `select stream from datapoints.blobs where not referred order by stream`)
			if err != nil {
				return err
			}
			loose, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if diff := cmp.Diff([]string{"blob-never", "blob-rows"}, loose); diff != "" {
				t.Errorf("%s: loose (-want +got):\n%s", name, diff)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.apply()
	blobs, err := w.Queries.UnreferencedBlobs(t.Context(), noon.Add(time.Second), noon, 10)
	if err != nil {
		t.Fatal(err)
	}
	var swept []string
	for _, b := range blobs {
		swept = append(swept, b.Stream)
	}
	if diff := cmp.Diff([]string{"blob-never", "blob-rows"}, swept); diff != "" {
		t.Errorf("to be swept (-want +got):\n%s", diff)
	}
}
