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
	"github.com/annals-project/annals/projections/history"
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
	// By is who began the erasure of Status.
	By *history.Principal `json:"by,omitempty"`
	// Stays is what no erasure takes, with the reason.
	Stays []string `json:"stays,omitempty"`
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
	named, err := d.History.Principals(r.Context(), []string{status.By})
	if err != nil {
		return v, err
	}
	v.By, v.Stays = new(named[status.By]), stays
	return v, d.list(r, &v)
}

// stays is what an erasure of a person leaves, with the reason.
var stays = []string{
	"ids, sizes, times and credits of the deleted data points: usage is counted by them, and they hold no text",
	"the leaf record of each event that went: it proves that the event was there, and does not show its content",
	"texts of others, also those that name the person: they are theirs; search the name and correct or delete them",
	"what other projects have of the identity: each project is erased for itself",
	"backups from before: they go when they are deleted",
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
