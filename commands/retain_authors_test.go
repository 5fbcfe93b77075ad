package commands_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// The retained facts of an erased data point name the author of each item by the id of the
// directory record, never by name.
func TestRetainFacts_AuthorsByRecordID(t *testing.T) {
	stored := uuid.New()
	w := newFixture(t)
	w.log.Namespaces = stream.NewNamespaces(make([]byte, 32))
	namespace, err := w.log.Namespaces.Of(stored)
	if err != nil {
		t.Fatal(err)
	}
	w.call.Principal.Project.Namespace = namespace
	project := w.call.Principal.Project
	created := registry.ProjectCreated{
		ProjectID: project.ID,
		Number:    project.Number,
		Slug:      "default",
		Name:      "Default",
		Namespace: stored,
	}
	meta := event.NewMeta("test", time.Now())
	if _, err := w.log.Append(t.Context(), stream.Registry, eventstore.NoStream, meta, created); err != nil {
		t.Fatal(err)
	}
	by := func(content, author string) commands.DataPoint {
		in := text("a", content)
		in.Identity = &author
		return in
	}
	w.ingest(by("one", "ana"), "")
	w.ingest(text("a", "two"), "")
	w.ingest(by("two", "ben"), "") // unchanged
	r, err := w.DeleteDataPoints(t.Context(), w.call, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	deleted := []uuid.UUID{stream.DataPointID(project.Namespace, "a")}
	if err := w.eraser().RetainFacts(t.Context(), r.OperationID, deleted); err != nil {
		t.Fatal(err)
	}
	facts, err := w.log.ReadFrom(t.Context(), stream.Name(stream.Deletion, r.OperationID), 0)
	if err != nil {
		t.Fatal(err)
	}
	var authors []uuid.UUID
	for _, f := range facts {
		if e, ok := f.Event.(*deletion.FactsKept); ok {
			for _, fact := range e.Facts {
				authors = append(authors, fact.AuthorID)
			}
		}
	}
	want := []uuid.UUID{stream.IdentityID(project.Namespace, "ana"), uuid.Nil, stream.IdentityID(project.Namespace, "ben")}
	if diff := cmp.Diff(want, authors); diff != "" {
		t.Errorf("authors (-want +got):\n%s", diff)
	}
}
