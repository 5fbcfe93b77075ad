package shown_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/memory"
	domainreads "github.com/annals-project/annals/domain/reads"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/reads"
	"github.com/annals-project/annals/projections/reads/shown"
	"github.com/annals-project/annals/projections/recall/recalltest"
	"github.com/annals-project/annals/projections/trace"
	"github.com/annals-project/annals/projections/why"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is a project whose reads were recorded.
type world struct {
	*recalltest.Harness
	t            *testing.T
	random       *rand.Rand
	organization uuid.UUID
	shown.Reader
	// texts are those of nodes, of the points that own them. erased is when a point was.
	texts  map[uuid.UUID]text
	erased map[string]time.Time
}

// text is what a node holds.
type text struct {
	id, content, source string
	memory              bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		Harness: recalltest.New(t, nil), t: t, random: rand.New(rand.NewPCG(49, 3)), organization: uuid.New(),
		texts: map[uuid.UUID]text{}, erased: map[string]time.Time{},
	}
	discard := slog.New(slog.DiscardHandler)
	w.AddProjector(trace.NewProjector(w.Journal))
	w.AddProjector(reads.New())
	w.AddProjector(access.New())
	w.AddProjector(directory.New(w.Journal, stream.Namespaces{}, discard))
	w.Append(stream.Registry, registry.ProjectCreated{
		ProjectID: w.Project.ID, OrganizationID: w.organization, Number: 1, Slug: w.Project.Slug,
		Namespace: w.Project.Namespace, CreatedAt: w.Now,
	})
	head := projections.Head{Log: w.Journal.Store, Waiter: w}
	w.Reader = shown.Reader{
		Reads: reads.Queries{DB: w.DB}, Log: w.Journal, Projects: w,
		Texts: why.NewTrace(why.TraceConfig{
			DB: w.DB, Journal: w.Journal, Head: head, Index: w.Index, Analyzers: domainrecall.NewAnalyzers(), Logger: discard,
			Now: func() time.Time { return w.Now },
		}),
		Access: why.Access{
			Points: datapoints.Queries{DB: w.DB, Store: w.Journal.Store, Wait: w}, Directory: directory.NewQueries(w.DB, w.Journal.Store, w, nil, nil), Now: func() time.Time { return w.Now },
			Past: why.Past{DB: w.DB, Head: head, Log: w.Journal},
		},
	}
	return w
}

// Wait implements the waiter of queries: it applies what the log holds.
func (w *world) Wait(context.Context, eventstore.Position, ...string) error {
	w.CatchUp()
	return nil
}

// Stopped implements the waiter of the directory.
func (w *world) Stopped(context.Context, string) error { return nil }

// ProjectNamed implements the projects of the reader.
func (w *world) ProjectNamed(_ context.Context, organization uuid.UUID, slug string) (auth.Named, bool, error) {
	return auth.Named{Project: w.Project}, organization == w.organization && slug == w.Project.Slug, nil
}

// send sends a data point of some revisions with memories.
func (w *world) send(id string) {
	for revision := range 1 + w.random.IntN(2) {
		content := fmt.Sprintf("Ana drinks tea %d of %s.", revision+1, id)
		w.Now = w.Now.Add(time.Second)
		w.Send(recalltest.DataPoint{ID: id, Content: content, Big: w.random.IntN(5) == 0})
		w.texts[datapoint.NodeID(w.DataPoint(id), revision+1)] = text{id, content, content, false}
		claim := fmt.Sprintf("Ana's tea is %d of %s.", revision+1, id)
		for again := range 1 + w.random.IntN(2) { // they may be derived again
			ids := w.Derive(id, revision+1, w.Now, again == 0,
				recalltest.Line{Kind: memory.Claim, Content: claim, Excerpt: content[:3], Subject: "ana", Attribute: "tea"})
			w.texts[ids[0]] = text{id, claim, content, true}
		}
	}
}

// show appends a record that shows some nodes, as a recall of them leaves it.
func (w *world) show(nodes ...uuid.UUID) domainreads.Record {
	w.t.Helper()
	known, err := trace.Leaves{DB: w.DB}.Leaves(w.t.Context(), nodes)
	if err != nil {
		w.t.Fatal(err)
	}
	r := domainreads.Record{
		ID: uuid.New(), At: w.Now, Way: domainreads.Recall, By: "key:" + uuid.NewString(), Shown: []domainreads.Shown{},
	}
	for _, id := range nodes {
		s := known[id]
		if s.Spans = nil; !w.texts[id].memory && w.random.IntN(2) == 0 {
			s.Spans = []domainreads.Span{{4, 10}}
		}
		if s.Node != id || len(s.Leaf) != 32 {
			w.t.Fatalf("leaf of %s: %+v", id, s)
		}
		r.Shown = append(r.Shown, s)
	}
	return r
}

// store appends a batch of records.
func (w *world) store(records ...domainreads.Record) {
	w.t.Helper()
	rooted, recorded, err := domainreads.Batch(w.organization, w.Project.ID, records)
	if err != nil {
		w.t.Fatal(err)
	}
	name := stream.ReadsName(w.Project.ID, w.Now.Format(time.DateOnly))
	w.Append(name, rooted)
	w.Append(name, recorded)
}

// erase deletes a data point, and goes on with its erasure up to a random stage.
func (w *world) erase(id string) {
	w.t.Helper()
	w.Now = w.Now.Add(time.Second)
	w.erased[id] = w.Now
	deletionID, point := w.Delete(id), w.DataPoint(id)
	stage := w.random.IntN(3)
	if stage == 0 {
		return
	}
	w.Append(stream.Name(stream.Deletion, deletionID), deletion.FactsKept{
		ProjectID: w.Project.ID, DataPoint: point, DeletedAt: w.Now, To: 2, Complete: true, Newest: 2,
		Memories: []deletion.MemoryCount{{Revision: 1, Count: 1}, {Revision: 2, Count: 1}},
	})
	for _, category := range []string{stream.Memory, stream.DataPoint} {
		last, ok, err := w.Store.ReadLast(w.t.Context(), stream.Name(category, point))
		if err == nil && ok && stage == 2 {
			_, err = w.Store.Tombstone(w.t.Context(), last.Stream, last.Revision)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// check checks what is shown of a record.
func (w *world) check(r domainreads.Record) {
	w.t.Helper()
	got, err := w.Read(w.t.Context(), shown.Query{Request: r.ID, Count: 100, Bytes: 1000})
	if err != nil || !got.Rooted || len(got.Shown) != len(r.Shown) || got.Principal != r.By {
		w.t.Errorf("record %s: %+v, %v", r.ID, got, err)
		return
	}
	for i, s := range got.Shown {
		want, node := w.texts[r.Shown[i].Node], r.Shown[i]
		if at, erased := w.erased[want.id]; erased {
			if s.Kept != why.KeptErased || s.Text != "" || s.Parts != nil || s.Deleted == nil || !s.Deleted.At.Equal(at) {
				w.t.Errorf("an erased text is %+v, want erased at %s", s.ShownText, at)
			}
			continue
		}
		if s.Kept != why.KeptAsStored || s.Text != want.content || s.SourceID != want.id ||
			node.Spans != nil && (len(s.Parts) != 1 || s.Parts[0] != want.source[4:10]) {
			w.t.Errorf("text %s is %+v, want %+v", node.Node, s.ShownText, want)
		}
	}
}

// Old reads are shown after erasures: each text is as it was, or it was erased.
func TestReader_OldReadsAfterErasures(t *testing.T) {
	const records, points, erased = 1000, 500, 300
	w := newWorld(t)
	for n := range points {
		w.send(fmt.Sprint("tea-", n))
	}
	w.CatchUp()
	nodes := make([]uuid.UUID, 0, len(w.texts))
	for id := range w.texts {
		nodes = append(nodes, id)
	}
	slices.SortFunc(nodes, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	var list []domainreads.Record
	for range records / 10 {
		batch := make([]domainreads.Record, 10)
		for i := range batch {
			some := make([]uuid.UUID, 1+w.random.IntN(4))
			for n := range some {
				some[n] = nodes[w.random.IntN(len(nodes))]
			}
			batch[i] = w.show(some...)
		}
		w.store(batch...)
		list = append(list, batch...)
	}
	for n := range erased {
		w.erase(fmt.Sprint("tea-", n))
	}
	w.CatchUp()
	for _, r := range list {
		w.check(r)
	}
}

// A text with another leaf record, and a record that another batch has, are found.
func TestReader_Differs(t *testing.T) {
	w := newWorld(t)
	w.send("tea")
	w.CatchUp()
	node := datapoint.NodeID(w.DataPoint("tea"), 1)
	changed, none := w.show(node), w.show(node)
	changed.Shown[0].Leaf = bytes.Repeat([]byte{1}, 32)
	none.Shown[0].Leaf = nil
	none.Shown = append(none.Shown, domainreads.Shown{Node: uuid.New()}, domainreads.Shown{DataPoint: uuid.New()})
	w.store(changed, none)
	elsewhere := w.show(node)
	rooted, _, err := domainreads.Batch(w.organization, w.Project.ID, []domainreads.Record{changed})
	if err != nil {
		t.Fatal(err)
	}
	name := stream.ReadsName(w.Project.ID, w.Now.Format(time.DateOnly))
	w.Append(name, rooted)
	w.Append(name, domainreads.Recorded{
		OrganizationID: w.organization, ProjectID: w.Project.ID, Records: []domainreads.Record{elsewhere},
	})
	w.CatchUp()
	for _, c := range []struct {
		of     domainreads.Record
		kept   []why.Kept
		rooted bool
	}{
		{changed, []why.Kept{why.KeptDiffers}, true},
		{none, []why.Kept{why.KeptUnproved, why.KeptUnknown, why.KeptUnknown}, true},
		{elsewhere, []why.Kept{why.KeptAsStored}, false},
	} {
		got, err := w.Read(t.Context(), shown.Query{Request: c.of.ID, Count: 10, Bytes: 7})
		var kept []why.Kept
		for _, s := range got.Shown {
			kept = append(kept, s.Kept)
		}
		if err != nil || !slices.Equal(kept, c.kept) || got.Rooted != c.rooted || got.Shown[0].Text != "Ana dri" ||
			!got.Shown[0].Cut {
			t.Errorf("%+v, %v; want %v", got, err, c.kept)
		}
	}
}

// Who asked could read a text then or could not, whatever is so now. A neighbour finds no record.
func TestReader_AsIdentityAndNeighbour(t *testing.T) {
	w := newWorld(t)
	w.send("tea")
	w.CatchUp()
	r := w.show(datapoint.NodeID(w.DataPoint("tea"), 1))
	r.As = stream.IdentityID(w.Project.Namespace, "ana")
	w.store(r)
	w.CatchUp()
	if _, err := w.DB.Exec(t.Context(), `insert into directory.identities
			(id, project_id, identity, traits, marks, broad, origin, created_at, updated_at, private, born)
		values ($1, $2, 'ana', '{}', '', false, 'manual', $3, $3, gen_random_uuid(), 1)`, r.As, w.Project.ID, w.Now); err != nil {
		t.Fatal(err)
	}
	got, err := w.ReadOf(t.Context(), w.Project, shown.Query{Request: r.ID, Count: 1, Bytes: 100})
	if err != nil || got.Identity != "ana" || got.Shown[0].Reading == nil || !got.Shown[0].Reading.MayRead ||
		got.Shown[0].Reading.Reason != why.ReasonProjectVisible {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = w.ReadOf(t.Context(), auth.Project{ID: uuid.New()}, shown.Query{Request: r.ID, Count: 1, Bytes: 100})
	if f, is := errors.AsType[*fault.Error](err); !is || f.Code != fault.CodeNotFound {
		t.Errorf("another project finds the record: %v", err)
	}
}
