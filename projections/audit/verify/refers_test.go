package verify_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/audit/audittest"
	"github.com/annals-project/annals/projections/audit/verify"
)

// A blob that an event refers to has the SHA-256 that the event has, or is erased.
func TestVerify_Blobs(t *testing.T) {
	l := audittest.New(t, 1)
	organization, project := l.OfProject()
	now := time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)
	journal := eventstore.Journal{Store: l.Store, Codec: l.Codec}
	point := uuid.New()
	write := func() datapoint.Text {
		ref, err := journal.WriteBlob(t.Context(), point, uuid.New(), project, now, event.NewMeta("test", now), []byte("text"))
		if err != nil {
			t.Fatal(err)
		}
		return datapoint.Text{Blob: &ref}
	}
	accepted := func(content datapoint.Text) datapoint.RevisionAccepted {
		e := datapoint.RevisionAccepted{Body: datapoint.Body{Content: content}}
		e.ProjectID, e.Effect.BodyAt = project, 1 // not stray
		return e
	}
	first, second := write(), write()
	for _, content := range []datapoint.Text{first, second, first} {
		l.Append(organization, stream.Name(stream.DataPoint, point),
			accepted(content))
	}
	s := &subject{Log: l}
	s.read(t)
	if f := s.verify(t, "").Finding; f != nil {
		t.Fatalf("found %+v", f)
	}
	if _, err := l.Store.Tombstone(t.Context(), first.Blob.Stream, 1); err != nil {
		t.Fatal(err)
	}
	if f := s.verify(t, "").Finding; f != nil {
		t.Errorf("an erased blob: %+v", f)
	}
	other := *second.Blob
	other.SHA256 = first.Blob.SHA256[1:] + "0"
	at := l.Append(organization, stream.Name(stream.DataPoint, point),
		accepted(datapoint.Text{Blob: &other}))
	s.read(t)
	if f := s.verify(t, "").Finding; f == nil || f.What != verify.Blob || f.Position != at {
		t.Errorf("a blob of another hash: %+v", f)
	}
}

// Read records are those of the root in the event before them.
func TestVerify_Reads(t *testing.T) {
	l := audittest.New(t, 1)
	organization, project := l.OfProject()
	name := stream.ReadsName(project, "2026-11-05")
	batch := func(n int) (reads.Rooted, reads.Recorded) {
		var records []reads.Record
		for i := range n {
			records = append(records, reads.Record{ID: uuid.New(), Part: i, Way: reads.Recall, Shown: []reads.Shown{}})
		}
		rooted, recorded, err := reads.Batch(organization, project, records)
		if err != nil {
			t.Fatal(err)
		}
		return rooted, recorded
	}
	s := &subject{Log: l}
	found := func() string {
		s.read(t)
		if f := s.verify(t, "").Finding; f != nil {
			return f.What
		}
		return ""
	}
	for n := range 4 {
		rooted, recorded := batch(n + 1)
		l.Append(organization, name, rooted)
		l.Append(organization, name, recorded)
	}
	if what := found(); what != "" {
		t.Errorf("found %s", what)
	}
	rooted, _ := batch(2)
	_, recorded := batch(2)
	l.Append(organization, name, rooted)
	l.Append(organization, name, recorded)
	if what := found(); what != verify.Reads {
		t.Errorf("found %q", what)
	}
	alone := &subject{Log: audittest.New(t, 1)}
	_, recorded = batch(1)
	alone.Append(organization, name, recorded)
	alone.read(t)
	if f := alone.verify(t, "").Finding; f == nil || f.What != verify.Reads {
		t.Errorf("records without a root: %+v", f)
	}
}
