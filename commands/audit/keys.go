package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/note"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/checkpoints"
)

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
