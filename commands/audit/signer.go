// Package audit signs checkpoints of the audit trees, and copies them to where the operator of the service cannot
// change them: to an anchor, and to witnesses.
package audit

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/panics"
)

const (
	// passTrees bounds the trees that a pass signs, and batchTrees those whose keys and marks are read and written
	// together. Of them, width are read and appended at the same time.
	passTrees  = 4096
	batchTrees = 128
	width      = 8
	// treeLimit bounds the work on one tree.
	treeLimit = 20 * time.Second
	// turn is how long a process that ended holds a task. It renews the turn before each batch.
	turn = 30 * time.Second
)

// principal is who appends checkpoints.
const principal = "pipeline"

// errNotYet reports a tree that the projection has not brought up to the end of its stream of checkpoints.
var errNotYet = errors.New("the projection audit has not applied the last checkpoint yet")

// differsError reports a tree that does not contain what was signed of it.
type differsError struct{ detail string }

func (e *differsError) Error() string {
	return "the audit tree does not match its checkpoints: " + e.detail
}

// Signer signs a checkpoint of each tree with something that none covers. Each decision is an append at an exact
// revision, so that several processes sign nothing twice.
type Signer struct {
	Journal eventstore.Journal
	Trees   Trees
	// Kept has a sealer, or this process only knows what waits.
	Kept checkpoints.Store
	// LogID returns the id of the log.
	LogID  func(context.Context) (uuid.UUID, error)
	Holder uuid.UUID
	Logger *slog.Logger
	Now    func() time.Time

	mu      sync.Mutex
	since   time.Time
	differs map[uuid.UUID]string
}

// Waiting returns since when an event waits for a checkpoint, as of the last pass, zero if none does.
func (s *Signer) Waiting() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

// Differs returns the organizations whose trees do not contain what was signed of them, and how. Nothing is signed for
// them.
func (s *Signer) Differs() map[uuid.UUID]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.differs)
}

// Pass signs what is due.
func (s *Signer) Pass(ctx context.Context) error {
	// Trees that differ stay due and must not take the places of others.
	due, err := s.Trees.Due(ctx, passTrees+len(s.Differs()))
	if err != nil {
		s.unknown()
		return fmt.Errorf("list the trees without a checkpoint: %w", err)
	}
	s.note(due)
	if len(due) == 0 || s.Kept.Sealer == nil { // another process has the seal keys
		return nil
	}
	mine := checkpoints.Turn{Task: "sign", Holder: s.Holder, Last: turn}
	var errs []error
	for batch := range slices.Chunk(due, batchTrees) {
		if is, err := s.Kept.Take(ctx, mine); err != nil || !is {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, s.signBatch(ctx, batch))
	}
	return errors.Join(append(errs, s.Kept.Pass(ctx, mine))...)
}

// unknown counts what cannot be read as waiting, from the first failure on.
func (s *Signer) unknown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = s.Now()
	}
}

// note remembers since when an event waits, and forgets trees that are no longer due.
func (s *Signer) note(due []Tree) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
	if len(due) > 0 {
		s.since = due[0].Since
	}
	maps.DeleteFunc(s.differs, func(organization uuid.UUID, _ string) bool {
		return !slices.ContainsFunc(due, func(t Tree) bool { return t.Organization == organization })
	})
}

// prepared is a tree that can be signed, or a key to add first.
type prepared struct {
	tree  Tree
	after eventstore.Revision // of the stream of checkpoints
	root  tlog.Hash
	keys  keys
	ready bool
}

// signBatch signs trees. An error of one concerns no other.
func (s *Signer) signBatch(ctx context.Context, batch []Tree) error {
	var organizations []uuid.UUID
	for _, t := range batch {
		organizations = append(organizations, t.Organization)
	}
	held, err := s.Kept.Keys(ctx, organizations)
	if err != nil {
		return err
	}
	signed, err := s.Kept.Signed(ctx, organizations)
	if err != nil {
		return err
	}
	list, errs := make([]prepared, len(batch)), make([]error, 2*len(batch))
	each := func(n int, do func(ctx context.Context, i int) error) error {
		return panics.Each(ctx, s.Logger, width, n, func(ctx context.Context, i int) error {
			ctx, cancel := context.WithTimeout(ctx, treeLimit)
			defer cancel()
			return do(ctx, i)
		})
	}
	err = each(len(batch), func(ctx context.Context, i int) error {
		t := batch[i]
		var err error
		list[i], err = s.prepare(ctx, t, held[t.Organization], signed[t.Organization])
		errs[i] = s.judge(ctx, t.Organization, err)
		return nil
	})
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(p prepared) bool { return !p.ready })
	if len(list) == 0 {
		return errors.Join(errs...)
	}
	marks := make([]checkpoints.Signed, len(list))
	for i, p := range list {
		marks[i] = checkpoints.Signed{Organization: p.tree.Organization, Size: p.tree.Size, Root: p.root}
	}
	may, err := s.Kept.KeepSigned(ctx, marks)
	if err != nil {
		return err
	}
	err = each(len(list), func(ctx context.Context, i int) error {
		if p := list[i]; may[p.tree.Organization] {
			errs[len(batch)+i] = s.judge(ctx, p.tree.Organization, s.append(ctx, p))
		}
		return nil
	})
	return errors.Join(append(errs, err, s.dropRetired(ctx, list))...)
}

// judge remembers whether a tree differs, and returns the errors that an operator should see otherwise.
func (s *Signer) judge(ctx context.Context, organization uuid.UUID, err error) error {
	differs, is := errors.AsType[*differsError](err)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch known := s.differs[organization]; {
	case is && known != differs.detail:
		if s.differs == nil {
			s.differs = map[uuid.UUID]string{}
		}
		s.differs[organization] = differs.detail
		s.Logger.ErrorContext(ctx, "audit tree does not match its checkpoints, nothing is signed for it",
			"organization", organization, "detail", differs.detail)
		return nil
	case is, errors.Is(err, errNotYet), errors.Is(err, eventstore.ErrConflict): // the next pass decides again
		return nil
	case err != nil:
		return fmt.Errorf("sign the tree of organization %s: %w", organization, err)
	}
	delete(s.differs, organization)
	return nil
}

// prepare checks a tree against what was signed of it. A tree without its keys gets one, and is signed in a later pass,
// once it contains the event.
func (s *Signer) prepare(
	ctx context.Context, t Tree, held []checkpoints.Key, signed checkpoints.Signed,
) (p prepared, err error) {
	p.tree = t
	if p.after, err = s.end(ctx, t); err != nil {
		return p, err
	}
	if p.root, err = s.check(ctx, t, signed); err != nil {
		return p, err
	}
	if p.keys, err = chooseKeys(t, held); err != nil {
		return p, err
	}
	if p.keys.missing {
		_, err = s.begin(ctx, t, held, p.after)
		return p, err
	}
	p.ready = true
	return p, nil
}

// end returns the last revision of the stream of checkpoints of a tree, which the tree must contain.
func (s *Signer) end(ctx context.Context, t Tree) (eventstore.Revision, error) {
	last, ok, err := s.Journal.Last(ctx, stream.Name(stream.Audit, t.Organization))
	if err == nil && ok && last.Position > t.Position {
		err = errNotYet
	}
	return last.Revision, err
}

// check returns the root of a tree, once it is proved to contain what was signed before.
func (s *Signer) check(ctx context.Context, t Tree, signed checkpoints.Signed) (root tlog.Hash, err error) {
	if root, err = tlog.TreeHash(t.Size, s.Trees.Reader(ctx, t.Organization)); err != nil {
		return root, err
	}
	former := []checkpoints.Signed{signed}
	if t.Checkpoint != "" {
		c, at, err := parse(t.Checkpoint)
		if err != nil {
			return root, &differsError{"the last checkpoint cannot be read: " + err.Error()}
		}
		if last := (checkpoints.Signed{Organization: t.Organization, Size: int64(c.Size), Root: at}); last != signed {
			former = append(former, last)
		}
	}
	for _, f := range former {
		switch {
		case f.Size == 0, f.Size == t.Size && f.Root == root:
			continue
		case f.Size > t.Size:
			return root, &differsError{fmt.Sprintf("%d events were signed, and it has %d", f.Size, t.Size)}
		case f.Size == t.Size:
			return root, &differsError{fmt.Sprintf("its first %d events are not those that were signed", f.Size)}
		}
		proof, err := tlog.ProveTree(t.Size, f.Size, s.Trees.Reader(ctx, t.Organization))
		if err != nil {
			return root, err
		}
		if err := tlog.CheckTree(proof, t.Size, root, f.Size, f.Root); err != nil {
			return root, &differsError{fmt.Sprintf("its first %d events are not those that were signed", f.Size)}
		}
	}
	return root, nil
}

// append appends the checkpoint of a tree.
func (s *Signer) append(ctx context.Context, p prepared) error {
	t := p.tree
	signed, err := sign(t.Origin, t.Size, p.root, p.keys.signers)
	if err != nil {
		return err
	}
	e := audit.CheckpointSigned{OrganizationID: t.Organization, Size: t.Size, Note: string(signed)}
	_, err = s.Journal.Append(ctx, stream.Name(stream.Audit, t.Organization), p.after,
		event.NewMeta(principal, s.Now()), e)
	return err
}

// dropRetired removes the keys that signed before those of some trees: a checkpoint of the newest key is in the log.
func (s *Signer) dropRetired(ctx context.Context, list []prepared) error {
	var ids []uuid.UUID
	for _, p := range list {
		ids = append(ids, p.keys.retired...)
	}
	if len(ids) == 0 {
		return nil
	}
	return s.Kept.DropKeys(ctx, ids)
}

// Tree is the state of the tree of an organization, zero for that of the deployment.
type Tree struct {
	Organization uuid.UUID
	// Size is how many leaves it has, Position that of the event of the last one.
	Size     int64
	Position eventstore.Position
	// Since is the time of the first event that no checkpoint covers, those of checkpoints aside.
	Since time.Time
	// Origin and Verifiers are those of the newest origin, its keys in their order. "" and none before the first key.
	Origin    string
	Verifiers []string
	// Checkpoint is the newest signed note, with the signatures of witnesses that came since, and CheckpointSize its
	// size. "" and 0 before the first.
	Checkpoint     string
	CheckpointSize int64
}

// Trees read the trees, which the projection audit keeps.
type Trees interface {
	Tree(ctx context.Context, organization uuid.UUID) (t Tree, ok bool, err error)
	// Trees returns at most limit trees after that of an organization, by id; nil is before the first.
	Trees(ctx context.Context, after *uuid.UUID, limit int) ([]Tree, error)
	// Due returns at most limit trees with something that no checkpoint covers, those that wait longest first.
	Due(ctx context.Context, limit int) ([]Tree, error)
	Reader(ctx context.Context, organization uuid.UUID) tlog.HashReader
	// Tile returns a tile of C2SP tlog-tiles; level -1 is the entries. ok is false if the tree is smaller.
	Tile(ctx context.Context, organization uuid.UUID, level int, n int64, width int) (tile []byte, ok bool, err error)
}

// parse reads a checkpoint without a look at its signatures.
func parse(signed string) (c log.Checkpoint, root tlog.Hash, err error) {
	if _, err := c.Unmarshal([]byte(signed)); err != nil {
		return c, root, err
	}
	if copy(root[:], c.Hash) != len(c.Hash) || len(c.Hash) != tlog.HashSize {
		return c, root, fmt.Errorf("the root of a checkpoint has %d bytes", len(c.Hash))
	}
	return c, root, nil
}

// sign makes a checkpoint. The name of each key is the origin.
func sign(origin string, size int64, root tlog.Hash, keys []note.Signer) ([]byte, error) {
	text := log.Checkpoint{Origin: origin, Size: uint64(size), Hash: bytes.Clone(root[:])}.Marshal()
	return note.Sign(&note.Note{Text: string(text)}, keys...)
}

// errSealed reports a key that another seal key seals.
var errSealed = errors.New("its key is sealed with a seal key that this process does not have: see ANNALS_SEAL_KEY")

// keys are those that sign the next checkpoint of a tree.
type keys struct {
	signers []note.Signer
	// missing reports that the tree has no key yet, or one that is not here: an origin begins.
	missing bool
	// retired are those that sign nothing any more.
	retired []uuid.UUID
}

// chooseKeys returns the keys that sign the next checkpoint: the newest of the origin and, until that has signed one,
// those before it from the one that signed the last on. So a reader that knows one key learns of the next.
func chooseKeys(t Tree, held []checkpoints.Key) (k keys, err error) {
	if len(t.Verifiers) == 0 {
		return keys{missing: true}, nil
	}
	from, err := lastSigner(t)
	if err != nil {
		return k, err
	}
	for _, verifier := range t.Verifiers[from:] {
		i := slices.IndexFunc(held, func(h checkpoints.Key) bool { return h.Origin == t.Origin && h.Verifier == verifier })
		if i < 0 {
			return keys{missing: true}, nil
		}
		if held[i].Signer == "" {
			return k, errSealed
		}
		signer, err := note.NewSigner(held[i].Signer)
		if err != nil {
			return k, fmt.Errorf("key %s: %w", verifier, err)
		}
		k.signers = append(k.signers, signer)
	}
	if len(k.signers) > 1 {
		return k, nil
	}
	for _, h := range held {
		if h.Origin != t.Origin || slices.Contains(t.Verifiers[:from], h.Verifier) {
			k.retired = append(k.retired, h.ID)
		}
	}
	return k, nil
}

// lastSigner returns which of the keys of a tree is the last that signed its newest checkpoint, the first one if none
// did.
func lastSigner(t Tree) (from int, err error) {
	if t.Checkpoint == "" {
		return 0, nil
	}
	for i, verifier := range t.Verifiers {
		v, err := note.NewVerifier(verifier)
		if err != nil {
			return 0, fmt.Errorf("key %s: %w", verifier, err)
		}
		if n, err := note.Open([]byte(t.Checkpoint), note.VerifierList(v)); err == nil && len(n.Sigs) > 0 {
			from = i
		}
	}
	return from, nil
}

// begin adds the first key of an origin, which follows what a tree had. A key of it that no event names, since a
// process ended in between, is taken first.
func (s *Signer) begin(
	ctx context.Context, t Tree, held []checkpoints.Key, after eventstore.Revision,
) (verifier string, err error) {
	log, err := s.LogID(ctx)
	if err != nil {
		return "", err
	}
	number := 1
	if t.Origin != "" {
		if number, err = strconv.Atoi(t.Origin[strings.LastIndexByte(t.Origin, '/')+1:]); err != nil {
			return "", fmt.Errorf("the origin %q has no number", t.Origin)
		}
		number++
	}
	return s.addKey(ctx, t, held, audit.Origin(log, t.Organization, number), t.Checkpoint, after)
}

func (s *Signer) addKey(
	ctx context.Context, t Tree, held []checkpoints.Key, origin, former string, after eventstore.Revision,
) (verifier string, err error) {
	i := slices.IndexFunc(held, func(h checkpoints.Key) bool {
		return h.Origin == origin && h.Signer != "" && !slices.Contains(t.Verifiers, h.Verifier)
	})
	if i >= 0 {
		verifier = held[i].Verifier
	} else {
		k := checkpoints.Key{ID: uuid.New(), Organization: t.Organization, Origin: origin}
		if k.Signer, k.Verifier, err = note.GenerateKey(rand.Reader, origin); err != nil {
			return "", err
		}
		if err := s.Kept.AddKey(ctx, k); err != nil {
			return "", err
		}
		verifier = k.Verifier
	}
	e := audit.KeyAdded{OrganizationID: t.Organization, Origin: origin, Verifier: verifier, Former: former}
	_, err = s.Journal.Append(ctx, stream.Name(stream.Audit, t.Organization), after, event.NewMeta(principal, s.Now()), e)
	return verifier, err
}

// Rotate adds a key to the tree of an organization and returns its public part. The next checkpoint is signed by the
// former key too, later ones by this one alone.
func (s *Signer) Rotate(ctx context.Context, organization uuid.UUID) (verifier string, err error) {
	if s.Kept.Sealer == nil {
		return "", fault.New(fault.Conflict, fault.CodeConflict, "this process has no seal key: set ANNALS_SEAL_KEY")
	}
	ctx, cancel := context.WithTimeout(ctx, treeLimit)
	defer cancel()
	for pause := backoff.Conflict(); ; {
		verifier, err = s.rotate(ctx, organization)
		if !errors.Is(err, errNotYet) && !errors.Is(err, eventstore.ErrConflict) {
			return verifier, err
		}
		if pause.Wait(ctx) != nil {
			return "", fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%v; retry", err)
		}
	}
}

func (s *Signer) rotate(ctx context.Context, organization uuid.UUID) (verifier string, err error) {
	t, ok, err := s.Trees.Tree(ctx, organization)
	if err != nil {
		return "", err
	}
	if !ok || t.Origin == "" {
		return "", fault.New(fault.Conflict, fault.CodeNotFound, "the tree has no key yet: its first checkpoint makes one")
	}
	after, err := s.end(ctx, t)
	if err != nil {
		return "", err
	}
	held, err := s.Kept.Keys(ctx, []uuid.UUID{organization})
	if err != nil {
		return "", err
	}
	return s.addKey(ctx, t, held[organization], t.Origin, "", after)
}
