package interop

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	cosignature "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"

	"github.com/annals-project/annals/commands/audit"
	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/auditfiles"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
	trees "github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/audit/prove"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// theTrees are the trees of the projection, as the signer asks for them.
type theTrees struct{ trees.Queries }

func (t theTrees) Tree(ctx context.Context, organization uuid.UUID) (audit.Tree, bool, error) {
	found, ok, err := t.Queries.Tree(ctx, organization)
	return one(found), ok, err
}

func (t theTrees) Trees(ctx context.Context, after *uuid.UUID, limit int) ([]audit.Tree, error) {
	return several(t.Queries.Trees(ctx, after, limit))
}

func (t theTrees) Due(ctx context.Context, limit int) ([]audit.Tree, error) {
	return several(t.Queries.Due(ctx, limit))
}

func several(found []trees.Tree, err error) (list []audit.Tree, _ error) {
	for _, t := range found {
		list = append(list, one(t))
	}
	return list, err
}

func one(t trees.Tree) audit.Tree {
	return audit.Tree{
		Organization: t.Organization, Size: t.Size, Position: t.Position, Since: t.Since, Origin: t.Origin,
		Verifiers: t.Verifiers, Checkpoint: t.Checkpoint, CheckpointSize: t.CheckpointSize,
	}
}

// service is a log with its trees, what signs them, and what copies them outside.
type service struct {
	*testing.T
	organization uuid.UUID
	store        *eventstoretest.Memory
	journal      eventstore.Journal
	projector    trees.Projector
	queries      trees.Queries
	signer       *audit.Signer
	at           eventstore.Position
}

func newService(t *testing.T) *service {
	t.Helper()
	db := pgtest.Database(t)
	runtest.Must(t, ops.Migrate(t.Context(), db, uuid.Nil))
	sealer, err := secret.NewSealer(bytes.Repeat([]byte{1}, secret.SealKeyBytes))
	runtest.Must(t, err)
	s := &service{T: t, organization: uuid.New(), store: eventstoretest.NewMemory(), queries: trees.Queries{DB: db}}
	s.journal = eventstore.Journal{Store: s.store, Codec: eventstoretest.Codec(t)}
	s.projector = trees.New(s.store, s.journal.Codec)
	projectiontest.Make(t, db, s.projector)
	log := uuid.New()
	s.signer = &audit.Signer{
		Journal: s.journal, Trees: theTrees{s.queries}, Kept: checkpoints.Store{DB: db, Sealer: sealer}, Holder: uuid.New(),
		Logger: runtest.Logger(t), Now: time.Now, LogID: func(context.Context) (uuid.UUID, error) { return log, nil },
	}
	return s
}

// happen appends events of the organization.
func (s *service) happen(count int) {
	s.Helper()
	events := make([]event.Event, count)
	for i := range events {
		events[i] = domain.RecordsKept{OrganizationID: s.organization, Stream: "some"}
	}
	name := stream.RecordsName(stream.Name(stream.DataPoint, uuid.New()))
	_, err := s.journal.Append(s.Context(), name, eventstore.NoStream, event.NewMeta("test", time.Now()), events...)
	runtest.Must(s, err)
}

// apply brings the trees up to the end of the log.
func (s *service) apply() {
	s.Helper()
	var page []eventstore.DecodedEvent
	for _, r := range eventstoretest.All(s, s.store, s.at) {
		page, s.at = append(page, s.journal.Codec.DecodeRecorded(r)), r.Position
	}
	if len(page) > 0 {
		projectiontest.Apply(s, s.queries.DB, s.projector, page...)
	}
	runtest.Must(s, projectiontest.FollowUp(s.Context(), s.queries.DB, s.projector))
}

// sign signs until nothing is due.
func (s *service) sign() trees.Tree {
	s.Helper()
	for range 4 {
		s.apply()
		runtest.Must(s, s.signer.Pass(s.Context()))
	}
	s.apply()
	return s.tree()
}

func (s *service) tree() trees.Tree {
	tree, _, err := s.queries.Tree(s.Context(), s.organization)
	if err != nil {
		s.Error(err)
	}
	return tree
}

// startWitness starts a witness that others wrote. It knows the key of a tree.
func startWitness(t *testing.T, tree func() trees.Tree) (address, line string, key note.Verifier) {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, "witness.example.com")
	runtest.Must(t, err)
	signer, err := cosignature.NewSignerForCosignatureV1(private)
	runtest.Must(t, err)
	public, err = cosignature.VKeyToCosignatureV1(public)
	runtest.Must(t, err)
	w, err := witness.New(t.Context(), witness.Opts{
		Persistence: inmemory.New(), Signers: []note.Signer{signer},
		VerifierForLog: func(_ context.Context, origin string) (note.Verifier, bool, error) {
			keys := tree().Verifiers
			v, err := note.NewVerifier(keys[len(keys)-1])
			return v, err == nil && origin == v.Name(), err
		},
	})
	runtest.Must(t, err)
	handler := http.NewServeMux()
	handler.HandleFunc("POST /add-checkpoint", witness.NewHTTPHandler(w).AddCheckpoint)
	served := httptest.NewServer(handler)
	t.Cleanup(served.Close)
	return served.URL, "witness w " + public, signer.Verifier()
}

// What the service signs is cosigned by a witness that others wrote; the anchor and the export of it are right for the
// fsck of Tessera, and for annals-verify with the quorum, before and after the key is rotated.
func TestService(t *testing.T) {
	s := newService(t)
	s.happen(300)
	first := s.sign()
	address, line, key := startWitness(t, func() trees.Tree { return s.tree() })
	copier := &audit.Copier{
		Trees: s.signer.Trees, Kept: s.signer.Kept, Holder: uuid.New(), Logger: s.signer.Logger, Now: time.Now,
	}
	witnesses := audit.NewWitnesses(copier, s.journal, []audit.Witness{{URL: address + "/add-checkpoint", Key: key}})
	dir := t.TempDir()
	place, err := audit.OpenPlace(dir, "")
	runtest.Must(t, err)
	anchor := audit.NewAnchor(copier, place)
	prover := &prove.Prover{Journal: s.journal, Trees: s.queries, Policy: line + "\nquorum w\n"}
	p := policy(t, first.Verifiers, line, "quorum w")
	// The first checkpoint after a rotation is signed by both keys, the next one by the new key alone.
	for round := range 3 {
		if round == 1 {
			_, err := s.signer.Rotate(t.Context(), s.organization)
			runtest.Must(t, err)
		}
		s.happen(200)
		s.sign()
		runtest.Must(t, witnesses.Pass(t.Context()))
		s.apply()
		runtest.Must(t, anchor.Pass(t.Context()))
		bundle := filepath.Join(t.TempDir(), "bundle")
		to, err := auditfiles.NewFolder(bundle)
		runtest.Must(t, err)
		runtest.Must(t, prover.Export(t.Context(), prove.ExportRequest{Organization: s.organization}, to))
		runtest.Must(t, to.Close())
		tree := s.tree()
		folders := []string{bundle, filepath.Join(dir, filepath.FromSlash(tree.Origin))}
		for _, folder := range folders {
			fsckOf(t, tree, folder)
		}
		trusted := 0
		err = auditfiles.Check(p, folders, nil, func(f auditfiles.Found) {
			if trusted++; f.Err != nil || f.Tree != nil && (len(f.Tree.Witnesses) != 1 || f.Tree.Size != tree.CheckpointSize) {
				t.Errorf("round %d: %+v", round, f)
			}
		})
		if want := 2 + len(tree.Verifiers); err != nil || trusted != want || len(tree.Verifiers) != 1+min(round, 1) {
			t.Errorf("round %d: %d files, %d keys, %v", round, trusted, len(tree.Verifiers), err)
		}
	}
}

// fsckOf checks a folder with the fsck of Tessera, by the newest key.
func fsckOf(t *testing.T, tree trees.Tree, folder string) {
	t.Helper()
	verifier, err := note.NewVerifier(tree.Verifiers[len(tree.Verifiers)-1])
	runtest.Must(t, err)
	files := client.FileFetcher{Root: folder}
	if err := fsck.New(tree.Origin, verifier, files, hashes, fsck.Opts{}).Check(t.Context()); err != nil {
		t.Errorf("fsck of %s: %v", folder, err)
	}
}
