// Package state shows how far the trees of the audit log are signed, and copied to places outside.
package state

import (
	"context"
	"time"

	"github.com/google/uuid"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/projections/audit"
)

// State is how far a tree is signed.
type State struct {
	// Organization is zero for the deployment.
	Organization uuid.UUID `json:"organization"`
	Name         string    `json:"name,omitempty"`
	// Events are the leaves, Uncovered those of them without a checkpoint.
	Events    int64 `json:"events"`
	Uncovered int64 `json:"uncovered"`
	// Since is when the first event happened that waits for a checkpoint.
	Since      time.Time   `json:"since,omitzero"`
	Origin     string      `json:"origin,omitempty"`
	Keys       []string    `json:"keys,omitempty"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// Cosigned is the newest checkpoint that a witness signed.
	Cosigned *Checkpoint `json:"cosigned,omitempty"`
	Copies   []Copy      `json:"copies,omitempty"`
	// Policy is the text of the policy that verifies the tree.
	Policy string `json:"-"`
	// Note is the newest checkpoint.
	Note string `json:"-"`
}

// Checkpoint is a signed size of a tree.
type Checkpoint struct {
	Events int64     `json:"events"`
	At     time.Time `json:"at"`
}

// Copy is how far a place outside has a tree: the anchor or a witness.
type Copy struct {
	Place  string `json:"place"`
	Events int64  `json:"events"`
	// Since is when the place was first to get a newer checkpoint.
	Since time.Time `json:"since,omitzero"`
}

// Trees read the trees, as audit.Queries does.
type Trees interface {
	Tree(ctx context.Context, organization uuid.UUID) (t audit.Tree, ok bool, err error)
	Trees(ctx context.Context, after *uuid.UUID, limit int) ([]audit.Tree, error)
}

// Reader reads states.
type Reader struct {
	Trees Trees
	// Copies returns the copies of trees: checkpoints.Store.Placed. Nil is none.
	Copies func(ctx context.Context, organizations []uuid.UUID) (map[uuid.UUID][]checkpoints.Placed, error)
	// Policy is that of the operator, which names witnesses; "" for none.
	Policy string
}

// pageTrees is how many trees are read at a time.
const pageTrees = 256

// One returns the state of the tree of an organization, one without events before it is built.
func (r Reader) One(ctx context.Context, organization uuid.UUID) (State, error) {
	tree, _, err := r.Trees.Tree(ctx, organization)
	if err != nil {
		return State{}, err
	}
	tree.Organization = organization
	list, err := r.states(ctx, []audit.Tree{tree})
	if err != nil {
		return State{}, err
	}
	return list[0], nil
}

// Each passes on the state of each tree, that of the deployment first.
func (r Reader) Each(ctx context.Context, emit func(State) error) error {
	for after := (*uuid.UUID)(nil); ; {
		page, err := r.Trees.Trees(ctx, after, pageTrees)
		if err != nil || len(page) == 0 {
			return err
		}
		list, err := r.states(ctx, page)
		if err != nil {
			return err
		}
		for _, one := range list {
			if err := emit(one); err != nil {
				return err
			}
		}
		after = &page[len(page)-1].Organization
	}
}

func (r Reader) states(ctx context.Context, trees []audit.Tree) ([]State, error) {
	var copies map[uuid.UUID][]checkpoints.Placed
	if r.Copies != nil {
		organizations := make([]uuid.UUID, len(trees))
		for i, t := range trees {
			organizations[i] = t.Organization
		}
		var err error
		if copies, err = r.Copies(ctx, organizations); err != nil {
			return nil, err
		}
	}
	list := make([]State, len(trees))
	for i, t := range trees {
		list[i] = State{
			Organization: t.Organization, Events: t.Size, Uncovered: t.Size - t.CheckpointSize, Since: t.Since,
			Origin: t.Origin, Keys: t.Verifiers, Note: t.Checkpoint,
		}
		for _, c := range copies[t.Organization] {
			list[i].Copies = append(list[i].Copies, Copy{c.Place, c.Size, c.Since})
		}
		witnesses := r.Policy
		if t.Cosigned == "" {
			witnesses = ""
		}
		if len(t.Verifiers) > 0 {
			list[i].Policy = domain.PolicyText(t.Verifiers, witnesses)
		}
		if t.Checkpoint != "" {
			list[i].Checkpoint = &Checkpoint{t.CheckpointSize, t.CheckpointAt}
		}
		if t.Cosigned != "" {
			list[i].Cosigned = &Checkpoint{t.CosignedSize, t.CosignedAt}
		}
	}
	return list, nil
}
