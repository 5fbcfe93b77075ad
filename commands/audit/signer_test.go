package audit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/audit"
	auditlog "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

// The first checkpoint comes after the key that signs it is in the log, and no other follows until something happens.
func TestSigner_SignsWhatHappened(t *testing.T) {
	s := newScene(t)
	organization, other, signer := uuid.New(), uuid.Nil, s.signer()
	s.happens(organization, 3)
	s.happens(other, 1)
	runtest.Must(t, signer.Pass(t.Context()))
	if tree := s.tree(organization); len(tree.Verifiers) != 1 || tree.Checkpoint != "" || signer.Waiting() != noon {
		t.Errorf("after one pass %+v, waiting since %s", tree, signer.Waiting())
	}
	first := s.signed(signer, organization)
	if diff := cmp.Diff([]int{0}, s.signers(first)); diff != "" || first.CheckpointSize != 4 {
		t.Errorf("%+v: %s", first, diff)
	}
	for id, tree := range map[uuid.UUID]audit.Tree{organization: first, other: s.tree(other)} {
		if tree.Origin != auditlog.Origin(logID, id, 1) {
			t.Errorf("the origin of %s is %s", id, tree.Origin)
		}
	}
	if !signer.Waiting().IsZero() {
		t.Errorf("something waits since %s", signer.Waiting())
	}
	s.happens(organization, 1)
	second := s.signed(signer, organization)
	if second.CheckpointSize != 6 || s.count(organization, signedV1) != 2 || s.count(organization, added) != 1 {
		t.Errorf("after another event %+v", second)
	}
	if n := s.count(other, signedV1); n != 1 {
		t.Errorf("%d checkpoints of the other tree", n)
	}
}

// A key is sealed, and after a rotation one checkpoint is signed by both.
func TestSigner_Rotate(t *testing.T) {
	s := newScene(t)
	organization, signer := uuid.New(), s.signer()
	if _, err := signer.Rotate(t.Context(), organization); !isConflict(err) {
		t.Errorf("before the first key: %v", err)
	}
	s.happens(organization, 1)
	s.signed(signer, organization)
	first, err := s.kept.Keys(t.Context(), []uuid.UUID{organization})
	runtest.Must(t, err)
	verifier, err := signer.Rotate(t.Context(), organization)
	runtest.Must(t, err)
	for i, want := range [][]int{{0, 1}, {1}, {1}} {
		s.happens(organization, 1)
		tree := s.signed(signer, organization)
		if diff := cmp.Diff(want, s.signers(tree)); diff != "" || len(tree.Verifiers) != 2 || tree.Verifiers[1] != verifier {
			t.Errorf("checkpoint %d after the rotation, of %v: %s", i, tree.Verifiers, diff)
		}
	}
	left, err := s.kept.Keys(t.Context(), []uuid.UUID{organization})
	runtest.Must(t, err)
	keys := left[organization]
	if len(keys) != 1 || keys[0].Verifier != verifier || keys[0].ID == first[organization][0].ID {
		t.Errorf("the keys %+v are left", keys)
	}
}

func isConflict(err error) bool {
	refused, is := errors.AsType[*fault.Error](err)
	return is && refused.Kind == fault.Conflict
}

// A log whose keys are not here was restored: its trees begin another origin, which holds the last checkpoint.
func TestSigner_RestoredLogBeginsAnOrigin(t *testing.T) {
	s := newScene(t)
	organization, signer := uuid.New(), s.signer()
	s.happens(organization, 2)
	before := s.signed(signer, organization)
	runtest.Must(t, checkpoints.Forget(t.Context(), s.kept.DB))
	s.happens(organization, 1)
	after := s.signed(s.signer(), organization)
	if after.Origin != auditlog.Origin(logID, organization, 2) || len(after.Verifiers) != 1 || len(s.signers(after)) != 1 {
		t.Errorf("after the restore %+v", after)
	}
	last, _, err := s.journal().At(t.Context(), "audit-"+organization.String(), 2)
	runtest.Must(t, err)
	if e, is := last.Event.(*auditlog.KeyAdded); !is || e.Former != before.Checkpoint {
		t.Errorf("the first event of the origin is %+v, want the checkpoint %q in it", last.Event, before.Checkpoint)
	}
}

// A tree that does not contain what was signed of it is signed no more, and holds up no other.
func TestSigner_TreeThatDiffers(t *testing.T) {
	s := newScene(t)
	signer, organizations := s.signer(), []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	for _, organization := range organizations {
		s.happens(organization, 5)
	}
	for _, organization := range organizations {
		s.signed(signer, organization)
	}
	// The tree of the first is cut, that of the second has another event.
	s.trees.changed = map[uuid.UUID]int64{organizations[1]: 2}
	s.trees.cut = map[uuid.UUID]int64{organizations[0]: 4}
	for _, organization := range organizations {
		s.happens(organization, 1)
	}
	for _, by := range []*audit.Signer{signer, s.signer()} { // a process that was started since knows it too
		s.signed(by, organizations[2])
		if differs := by.Differs(); len(differs) != 2 || differs[organizations[2]] != "" {
			t.Errorf("%v differ", differs)
		}
	}
	for i, want := range []int{1, 1, 2} {
		if n := s.count(organizations[i], signedV1); n != want {
			t.Errorf("%d checkpoints of organization %d, want %d", n, i, want)
		}
	}
	s.trees.changed, s.trees.cut = nil, nil
	s.signed(signer, organizations[1])
	if differs := signer.Differs(); len(differs) > 0 || s.count(organizations[1], signedV1) != 2 {
		t.Errorf("once the trees are right again, %v differ", differs)
	}
}

// loses loses the answers of some appends, or refuses them.
type loses struct {
	eventstore.Store
	refuse func(stream string) error
}

func (l loses) Append(
	ctx context.Context, name string, at eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	if err := l.refuse(name); err != nil {
		return eventstore.Appended{}, err
	}
	return l.Store.Append(ctx, name, at, events)
}

// What ends between a mark and its append is made up for: with the same key, and with a checkpoint that is no smaller.
func TestSigner_AppendFails(t *testing.T) {
	s := newScene(t)
	organization, away := uuid.New(), errors.New("the store is away")
	failing := s.signer()
	failing.Journal.Store = loses{s.log, func(string) error { return away }}
	s.happens(organization, 2)
	for range 2 {
		if err := failing.Pass(t.Context()); !errors.Is(err, away) {
			t.Errorf("%v", err)
		}
	}
	keys, err := s.kept.Keys(t.Context(), []uuid.UUID{organization})
	if err != nil || len(keys[organization]) != 1 {
		t.Errorf("%d keys, want one that is tried again: %v", len(keys[organization]), err)
	}
	runtest.Must(t, s.signer().Pass(t.Context()))
	if err := failing.Pass(t.Context()); !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
	marks, err := s.kept.Signed(t.Context(), []uuid.UUID{organization})
	if err != nil || marks[organization].Size != 3 || s.count(organization, signedV1) != 0 {
		t.Errorf("marked %+v, %v", marks, err)
	}
	s.trees.cut = map[uuid.UUID]int64{organization: 2}
	other := s.signer()
	runtest.Must(t, other.Pass(t.Context()))
	if len(other.Differs()) != 1 {
		t.Error("a smaller tree than the one that was about to be signed is signed")
	}
	s.trees.cut = nil
	if tree := s.signed(other, organization); tree.CheckpointSize != 3 || len(s.signers(tree)) != 1 {
		t.Errorf("%+v", tree)
	}
}

// Many processes that sign at once sign each tree once.
func TestSigner_ManyProcesses(t *testing.T) {
	s := newScene(t)
	organizations := make([]uuid.UUID, 20)
	for i := range organizations {
		organizations[i] = uuid.New()
		s.happens(organizations[i], 1)
	}
	for range 3 {
		var all sync.WaitGroup
		for range 3 {
			by := s.signer()
			all.Go(func() {
				_, err := s.kept.DB.Exec(t.Context(), "delete from ops.audit_turns") // even if all believe that it is their turn
				if err := errors.Join(err, by.Pass(t.Context())); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	for _, organization := range organizations {
		if n, keys := s.count(organization, signedV1), s.count(organization, added); n != 1 || keys != 1 {
			t.Errorf("%d checkpoints and %d keys", n, keys)
		}
		if tree := s.tree(organization); len(s.signers(tree)) != 1 {
			t.Errorf("%+v is not signed", tree)
		}
	}
}

// A process without the seal key of a key signs nothing, and begins no origin either. Once the loss is accepted, one
// begins.
func TestSigner_SealKeyIsLost(t *testing.T) {
	s := newScene(t)
	organization := uuid.New()
	s.happens(organization, 1)
	s.signed(s.signer(), organization)
	other, err := secret.NewSealer(make([]byte, secret.SealKeyBytes))
	runtest.Must(t, err)
	s.kept.Sealer = other
	s.happens(organization, 1)
	if err := s.signer().Pass(t.Context()); err == nil || s.tree(organization).CheckpointSize != 2 {
		t.Errorf("%v, and %+v", err, s.tree(organization))
	}
	runtest.Must(t, checkpoints.KeepKeysOf(t.Context(), s.kept.DB, []string{other.First()}))
	if tree := s.signed(s.signer(), organization); tree.Origin != auditlog.Origin(logID, organization, 2) ||
		len(s.signers(tree)) != 1 {
		t.Errorf("%+v", tree)
	}
}

// A process without any seal key knows what waits, and neither signs nor makes keys.
func TestSigner_NoSealKey(t *testing.T) {
	s := newScene(t)
	organization := uuid.New()
	s.happens(organization, 1)
	signer := s.signer()
	s.signed(signer, organization)
	s.happens(organization, 1)
	s.kept.Sealer = nil
	without := s.signer()
	runtest.Must(t, without.Pass(t.Context()))
	if _, err := without.Rotate(t.Context(), organization); !isConflict(err) || without.Waiting() != noon ||
		s.count(organization, added) != 1 || s.count(organization, signedV1) != 1 {
		t.Errorf("%v, waiting since %s", err, without.Waiting())
	}
}

// A projection that lags signs nothing, whatever it has.
func TestSigner_ProjectionLags(t *testing.T) {
	s := newScene(t)
	organization := uuid.New()
	s.happens(organization, 1)
	head, err := s.log.Head(t.Context())
	runtest.Must(t, err)
	signer := s.signer()
	s.signed(signer, organization)
	s.trees.asOf = head
	s.signed(signer, organization)
	if differs := signer.Differs(); len(differs) > 0 {
		t.Errorf("%v differ", differs)
	}
	s.trees.asOf = 0
	if s.signed(signer, organization); s.count(organization, signedV1) != 1 || s.count(organization, added) != 1 {
		t.Error("something was signed twice")
	}
}

// One tree that cannot be read holds up no other.
func TestSigner_OneFails(t *testing.T) {
	s := newScene(t)
	organizations := []uuid.UUID{uuid.New(), uuid.New()}
	for _, organization := range organizations {
		s.happens(organization, 1)
	}
	signer := s.signer()
	var refused atomic.Int32
	signer.Journal.Store = loses{s.log, func(name string) error {
		if name == "audit-"+organizations[0].String() {
			refused.Add(1)
			return errors.New("it is refused")
		}
		return nil
	}}
	for range 3 {
		if err := signer.Pass(t.Context()); err == nil {
			t.Error("no error")
		}
	}
	counts := []int{s.count(organizations[0], added), s.count(organizations[1], signedV1)}
	if !slices.Equal(counts, []int{0, 1}) || refused.Load() == 0 {
		t.Errorf("%v", counts)
	}
}
