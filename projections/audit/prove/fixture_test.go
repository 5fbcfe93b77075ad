package prove

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	cosignature "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/datapoints"
	projectedreads "github.com/annals-project/annals/projections/reads"
	"github.com/annals-project/annals/projections/trace"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var noon = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

// applied is a waiter for projections that have every event as soon as it is appended.
type applied struct{}

func (applied) Wait(context.Context, eventstore.Position, ...string) error { return nil }

// tenant is an organization with one project, and the keys of its tree.
type tenant struct {
	id, project, namespace uuid.UUID
	origin                 string
	keys, verifiers        []string
}

// fixture is a log with the tables that proofs are found by.
type fixture struct {
	*Prover
	t          *testing.T
	db         *pgxpool.Pool
	store      *eventstoretest.Memory
	projectors []projectiontest.Projector
	trees      audit.Queries
	here       *tenant
	there      *tenant
	n          int    // the time in seconds
	commit     uint64 // position of the commit of the batch
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, db: pgtest.Database(t), store: eventstoretest.NewMemory()}
	journal := eventstore.Journal{Store: f.store, Codec: eventstoretest.Codec(t)}
	f.projectors = []projectiontest.Projector{
		access.New(), datapoints.New(journal), trace.NewProjector(journal), projectedreads.New(),
		audit.New(f.store, journal.Codec),
	}
	for _, p := range f.projectors {
		projectiontest.Make(t, f.db, p)
	}
	namespaces := stream.NewNamespaces(make([]byte, 32))
	f.trees = audit.Queries{DB: f.db}
	f.Prover = &Prover{
		DB: f.db, Journal: journal, Trees: f.trees, Head: projections.Head{Log: f.store, Waiter: applied{}},
		Projects: access.Queries{DB: f.db, Namespaces: namespaces},
	}
	log := uuid.New()
	for i, to := range []**tenant{&f.here, &f.there} {
		n := &tenant{id: uuid.New(), project: uuid.New()}
		n.origin = domain.Origin(log, n.id, 1)
		*to = n
		secret := uuid.New()
		var err error
		if n.namespace, err = namespaces.Of(secret); err != nil {
			t.Fatal(err)
		}
		f.append(stream.Registry, &registry.ProjectCreated{
			OrganizationID: n.id, ProjectID: n.project, Number: int64(i + 1), Slug: "notes", Namespace: secret, CreatedAt: noon,
		})
	}
	return f
}

// append appends events a second after those before, and applies them.
func (f *fixture) append(name string, events ...event.Event) (last eventstore.DecodedEvent) {
	f.t.Helper()
	at, ok, err := f.store.ReadLast(f.t.Context(), name)
	if err != nil {
		f.t.Fatal(err)
	}
	if !ok {
		at.Revision = eventstore.NoStream
	}
	f.n++
	meta := event.NewMeta("pipeline", noon.Add(time.Duration(f.n)*time.Second))
	done, err := f.Journal.Append(f.t.Context(), name, at.Revision, meta, events...)
	if err != nil {
		f.t.Fatal(err)
	}
	added, err := f.Journal.ReadFrom(f.t.Context(), name, at.Revision+1)
	if err != nil || len(added) != len(events) || added[len(added)-1].Revision != done.Revision {
		f.t.Fatalf("%d events added, %v", len(added), err)
	}
	for _, p := range f.projectors {
		projectiontest.Apply(f.t, f.db, p, added...)
	}
	return added[len(added)-1]
}

// send stores a revision of a data point, and a memory of it.
func (f *fixture) send(to *tenant, id uuid.UUID, ordinal, items int, source string, revision int) uuid.UUID {
	f.t.Helper()
	point := stream.DataPointID(to.namespace, source)
	e := &datapoint.RevisionAccepted{Send: datapoint.Send{
		ProjectID: to.project, IngestionID: id, Ordinal: ordinal, Items: items, AcceptedAt: noon, RequestID: uuid.New(),
		Bytes: 9, CreditTenths: 10, Month: "2026-11",
	}}
	if items > 1 {
		e.Commit = f.commit
	}
	e.Effect = datapoint.State{
		SourceID: source, Revision: revision, LastNumber: revision, BodyAt: int64(revision - 1), OccurredAt: noon, IngestionID: id,
	}
	e.Body.Content = datapoint.Text{Inline: "tea at five " + source}
	f.append(stream.Name(stream.DataPoint, point), e)
	f.append(stream.Name(stream.Memory, point), &memory.Derived{
		ProjectID: to.project, IngestionID: id, Ordinal: ordinal, Revision: revision, DerivedAt: noon, OccurredAt: noon,
	})
	return point
}

// erase deletes a data point, keeps its facts and removes it from the log.
func (f *fixture) erase(to *tenant, source string) (deletionID uuid.UUID) {
	f.t.Helper()
	point := stream.DataPointID(to.namespace, source)
	deletionID = uuid.New()
	name := stream.Name(stream.DataPoint, point)
	deletedAt := noon.Add(time.Duration(f.n) * time.Minute)
	f.append(name, &datapoint.Deleted{
		ProjectID: to.project, DeletionID: deletionID, RequestID: uuid.New(), DeletedAt: deletedAt, Single: true,
	})
	facts := &deletion.FactsKept{
		OrganizationID: to.id, ProjectID: to.project, DataPoint: point, DeletedAt: deletedAt, Complete: true,
		Principal: "key:" + uuid.NewString(), Single: true, Facts: []deletion.RetainedFact{},
	}
	streams := map[string]*domain.KeptList{name: &facts.Records, stream.Name(stream.Memory, point): &facts.MemoryRecords}
	for from, list := range streams {
		events, err := f.Journal.ReadFrom(f.t.Context(), from, 0)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, e := range events {
			kept, err := e.Kept(to.id)
			if err != nil {
				f.t.Fatal(err)
			}
			*list = append(*list, kept)
			if send, states, ok := datapoint.SendOf(e.Event); ok {
				facts.Facts = append(facts.Facts, deletion.RetainedFact{
					IngestionID: send.IngestionID, Ordinal: send.Ordinal, Items: send.Items, AcceptedAt: send.AcceptedAt,
					Month: send.Month, Outcome: ingestion.Created, Revision: states.Effect.Revision, Batch: send.Commit != 0,
				})
			}
		}
	}
	facts.To, facts.MemoriesTo = int64(len(facts.Records)), int64(len(facts.MemoryRecords))
	f.append(stream.Name(stream.Deletion, deletionID), facts)
	for from, list := range streams {
		if _, err := f.store.Tombstone(f.t.Context(), from, eventstore.Revision(len(*list)-1)); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := f.store.Scavenge(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	return deletionID
}

// read stores read records in a batch.
func (f *fixture) read(to *tenant, records ...reads.Record) {
	f.t.Helper()
	rooted, recorded, err := reads.Batch(to.id, to.project, records)
	if err != nil {
		f.t.Fatal(err)
	}
	f.append(stream.ReadsName(to.project, noon.Format(time.DateOnly)), &rooted, &recorded)
}

// rotate adds a key to the tree of an organization.
func (f *fixture) rotate(to *tenant) {
	f.t.Helper()
	private, public, err := note.GenerateKey(nil, to.origin)
	if err != nil {
		f.t.Fatal(err)
	}
	to.keys, to.verifiers = append(to.keys, private), append(to.verifiers, public)
	f.append(stream.Name(stream.Audit, to.id), &domain.KeyAdded{
		OrganizationID: to.id, Origin: to.origin, Verifier: public,
	})
}

// sign signs a checkpoint of all leaves with the last so many keys.
func (f *fixture) sign(to *tenant, keys int) {
	f.t.Helper()
	tree, _, err := f.trees.Tree(f.t.Context(), to.id)
	if err != nil {
		f.t.Fatal(err)
	}
	root, err := tlog.TreeHash(tree.Size, f.trees.Reader(f.t.Context(), to.id))
	if err != nil {
		f.t.Fatal(err)
	}
	var signers []note.Signer
	for _, key := range to.keys[len(to.keys)-keys:] {
		s, err := note.NewSigner(key)
		if err != nil {
			f.t.Fatal(err)
		}
		signers = append(signers, s)
	}
	text := fmt.Sprintf("%s\n%d\n%s\n", to.origin, tree.Size, root)
	signed, err := note.Sign(&note.Note{Text: text}, signers...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.append(stream.Name(stream.Audit, to.id), &domain.CheckpointSigned{
		OrganizationID: to.id, Size: tree.Size, Note: string(signed),
	})
}

// cosign signs the newest checkpoint with the keys of witnesses.
func (f *fixture) cosign(of *tenant, keys []string) {
	f.t.Helper()
	tree, _, err := f.trees.Tree(f.t.Context(), of.id)
	if err != nil {
		f.t.Fatal(err)
	}
	e := &domain.CheckpointCosigned{OrganizationID: of.id, Size: tree.CheckpointSize, Note: tree.Checkpoint}
	text, _, _ := strings.Cut(tree.Checkpoint, "\n\n")
	for _, key := range keys {
		signer, err := cosignature.NewSignerForCosignatureV1(key)
		if err != nil {
			f.t.Fatal(err)
		}
		signed, err := note.Sign(&note.Note{Text: text + "\n"}, signer)
		if err != nil {
			f.t.Fatal(err)
		}
		_, line, _ := strings.Cut(string(signed), "\n\n")
		e.Signatures += line
	}
	f.append(stream.Name(stream.Audit, of.id), e)
}

// policy is that of who trusts the first key of an organization.
func (f *fixture) policy(of *tenant) proof.Policy {
	f.t.Helper()
	p, err := proof.ParsePolicy([]byte("log " + of.verifiers[0] + "\nquorum none\n"))
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// sink keeps the files of a bundle.
type sink fstest.MapFS

type sinkFile struct{ file *fstest.MapFile }

func (f *sinkFile) Write(data []byte) (int, error) {
	f.file.Data = append(f.file.Data, data...)
	return len(data), nil
}

func (s sink) Create(name string) (io.Writer, error) {
	if s[name] != nil {
		return nil, fmt.Errorf("file %s twice", name)
	}
	s[name] = &fstest.MapFile{}
	return &sinkFile{file: s[name]}, nil
}
