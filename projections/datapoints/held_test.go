package datapoints_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/datapoints"
)

func TestApply_AcceptedTexts(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, datapoints.New(nil))
	name := rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r != 0 })) // ids and labels reject U+0000
	rapid.Check(tt, func(t *rapid.T) {
		w := &fixture{t: tt, project: project.ID}
		label, source := name.Draw(t, "label"), name.Draw(t, "source id")
		body := datapoint.Body{Content: datapoint.Text{Inline: rapid.String().Draw(t, "content")}}
		if rapid.Bool().Draw(t, "metadata") {
			metadata, err := json.Marshal(rapid.String().Draw(t, "metadata")) // JSON writes U+0000 as an escape
			if err != nil {
				t.Fatal(err)
			}
			body.Metadata = &datapoint.Text{Inline: string(metadata)}
		}
		if rapid.Bool().Draw(t, "big") {
			body.Content = datapoint.Text{Blob: &blob.Ref{Stream: "blob-a", Size: 1 << 40, SHA256: "00"}}
		}
		occurred := time.Date(rapid.IntRange(0, 9999).Draw(t, "year"), 12, 31, 23, 59, 59,
			rapid.IntRange(0, 999999999).Draw(t, "ns"), time.UTC)
		from := w.send("s", alone)
		author := name.Draw(t, "author")
		w.Append(stream.Name(
			stream.DataPoint, id("a"),
		), &datapoint.RevisionAccepted{Send: from, Body: body, Author: author, States: datapoint.States{
			Effect: datapoint.State{
				SourceID: source, Revision: 1, LastNumber: 1, Label: &label, OccurredAt: occurred, IngestionID: id("s"),
			},
		}})
		w.Append(stream.Name(stream.Memory, id("a")), &memory.Failed{
			ProjectID: w.project, IngestionID: id("s"), Revision: 1, Code: rapid.String().Draw(t, "code"),
			Message: rapid.String().Draw(t, "message"), Final: true,
		})
		w.Append(stream.Name(stream.Ingestion, id("s")),
			&ingestion.Failed{ProjectID: w.project, Code: ingestion.Internal, Message: rapid.String().Draw(t, "reason")})
		type row struct {
			Source, Label string
			Content       []byte
			Metadata      *string
			OccurredAt    time.Time
		}
		pages := [][]eventstore.DecodedEvent{w.Facts}
		err := projectiontest.Inspect(tt.Context(), db, datapoints.New(nil), pages, func(tx pgx.Tx) error {
			var got row
			if err := tx.QueryRow(tt.Context(), `select d.source_id, r.label, r.content, r.metadata, d.occurred_at
				from datapoints.data_points d join datapoints.revisions r on r.data_point = d.id`).
				Scan(&got.Source, &got.Label, &got.Content, &got.Metadata, &got.OccurredAt); err != nil {
				return err
			}
			want := row{Source: source, Label: label, OccurredAt: occurred.Truncate(time.Microsecond)}
			if body.Content.Blob == nil {
				want.Content = []byte(body.Content.Inline)
			}
			if body.Metadata != nil {
				want.Metadata = &body.Metadata.Inline
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("row (-want +got):\n%s", diff)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
