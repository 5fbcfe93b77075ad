package organization

import (
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/console/pages/webhooks"
	"github.com/annals-project/annals/console/web"
	process "github.com/annals-project/annals/domain/erasure"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/projections/why"
)

// erasureList is the erasures of a project, one of them at its path, and what it holds of the identity of the query.
type erasureList struct {
	Open     []openErasure         `json:"open"`
	Ended    []erasures.Ended      `json:"ended"`
	Status   *erasure.PersonStatus `json:"status,omitempty"`
	Identity string                `json:"identity,omitempty"`
	Found    *erasure.Person       `json:"found,omitempty"`
	// Taken is what the erasure of Found takes besides, and what it leaves.
	Taken *why.Taken `json:"taken,omitempty"`
	// Replayed is what a replay of the dropped events did, nil for none.
	Replayed *webhooks.Replayed `json:"-"`
	// Step of Steps is how far the erasure of Status is, DataPoints how many it deleted.
	Step       int  `json:"-"`
	Steps      int  `json:"-"`
	DataPoints int  `json:"-"`
	IsDone     bool `json:"-"`
}

type openErasure struct {
	ID       uuid.UUID `json:"id"`
	Identity string    `json:"identity"`
}

// AtOnce is how many of the dropped events one form replays.
func (v erasureList) AtOnce() int { return min(v.Taken.Dropped, webhooks.MostReplayed) }

// phases are those of an erasure, in order.
var phases = []process.Phase{process.Deleting, process.Purging, process.Checking, process.Done}

// erasures shows what the project holds of an identity.
func (d Deps) erasures(r *web.Request) (v erasureList, err error) {
	if v.Identity = r.FormValue("identity"); v.Identity != "" {
		found, err := d.Erasures.Find(r.Context(), r.Project.Project.ID, v.Identity)
		if err != nil {
			return v, err
		}
		taken, err := d.Takes.Taken(r.Context(), r.Membership.Organization, r.Project.Project, v.Identity, r.Now())
		if err != nil {
			return v, err
		}
		v.Found, v.Taken = &found, &taken
	}
	if v.Replayed, err = web.Once[*webhooks.Replayed](r); err != nil {
		return v, err
	}
	return v, d.list(r, &v)
}

// list adds the erasures of the project.
func (d Deps) list(r *web.Request, v *erasureList) (err error) {
	if v.Ended, err = d.Names.Ended(r.Context(), r.Project.Project.ID); err != nil {
		return err
	}
	open, err := d.Names.OfProject(r.Context(), r.Project.Project.ID)
	v.Open = make([]openErasure, len(open))
	for i, p := range open {
		v.Open[i] = openErasure{p.ID, p.Identity}
	}
	return err
}

// erasure shows the state of one. It reads that first: an erasure whose state is the last one has no name in the list.
func (d Deps) erasure(r *web.Request) (v erasureList, err error) {
	id, err := uuid.Parse(r.PathValue("erasure"))
	if err != nil {
		return v, fault.New(fault.NotFound, fault.CodeNotFound, "the project has no such erasure")
	}
	status, err := d.Erasures.Status(r.Context(), r.Project.Project.ID, id)
	if err != nil {
		return v, err
	}
	v.Status, v.Steps, v.IsDone = &status, len(phases)-1, status.Phase == process.Done
	v.Step = max(0, slices.Index(phases, status.Phase))
	for _, receipt := range status.Receipts {
		v.DataPoints += receipt.DataPoints
	}
	return v, d.list(r, &v)
}

// erase begins an erasure. The name is written a second time, since nothing brings back what is erased.
func (d Deps) erase(r *web.Request) error {
	identity := r.PostForm.Get("identity")
	if identity == "" || identity != r.PostForm.Get("again") {
		return web.NewPage("erasures.html", d.erasures).Again(r, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"write the identity exactly as it is, to confirm that all of it is to be erased"))
	}
	id, err := d.Erasures.Start(r.Context(), erasures.Person{
		ProjectID: r.Project.Project.ID, Identity: identity, By: r.Command().Principal.Name(),
	})
	if err != nil {
		return err
	}
	r.Redirect(r.ProjectPath("erasures", id.String()))
	return nil
}
