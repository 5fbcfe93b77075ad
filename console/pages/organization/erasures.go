package organization

import (
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/console/web"
	process "github.com/annals-project/annals/domain/erasure"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/erasures"
)

// erasuresView is the erasures of a project. What it shows depends on the query: id names an erasure, and identity
// somebody to erase.
type erasuresView struct {
	Open     []openRow             `json:"open"`
	Status   *erasure.PersonStatus `json:"status,omitempty"`
	Identity string                `json:"identity,omitempty"`
	Found    *erasure.Person       `json:"found,omitempty"`
	// Step of Steps is how far the erasure of Status is, DataPoints how many it deleted.
	Step       int  `json:"-"`
	Steps      int  `json:"-"`
	DataPoints int  `json:"-"`
	IsDone     bool `json:"-"`
}

type openRow struct {
	ID       uuid.UUID `json:"id"`
	Identity string    `json:"identity"`
}

// phases are those of an erasure, in order.
var phases = []process.Phase{process.Deleting, process.Purging, process.Checking, process.Done}

func (d Deps) erasures(r *web.Request) error {
	view, err := d.erasuresOf(r)
	query := r.URL.Query()
	switch {
	case err != nil:
	case query.Get("id") != "":
		err = d.look(r, &view, query.Get("id"))
	case query.Get("identity") != "":
		err = d.find(r, &view, query.Get("identity"))
	}
	if err != nil {
		return err
	}
	return r.Render("erasures.html", view)
}

func (d Deps) erasuresOf(r *web.Request) (v erasuresView, err error) {
	open, err := d.Open(r.Context(), r.Project.Project.ID)
	v.Open = []openRow{}
	for _, p := range open {
		v.Open = append(v.Open, openRow{p.ID, p.Identity})
	}
	return v, err
}

// look adds the state of an erasure.
func (d Deps) look(r *web.Request, v *erasuresView, text string) error {
	id, err := uuid.Parse(text)
	if err != nil {
		return fault.New(fault.NotFound, fault.CodeNotFound, "the project has no erasure %q", web.Cut(text, 50))
	}
	status, err := d.Erasures.Status(r.Context(), r.Project.Project.ID, id)
	if err != nil {
		return err
	}
	v.Status, v.Steps, v.IsDone = &status, len(phases)-1, status.Phase == process.Done
	v.Step = max(0, slices.Index(phases, status.Phase))
	for _, receipt := range status.Receipts {
		v.DataPoints += receipt.DataPoints
	}
	return nil
}

// find adds what the project holds of an identity.
func (d Deps) find(r *web.Request, v *erasuresView, identity string) error {
	found, err := d.Erasures.Find(r.Context(), r.Project.Project.ID, identity)
	v.Identity, v.Found = identity, &found
	return err
}

// erase begins an erasure. The name is written a second time, since nothing brings back what is erased.
func (d Deps) erase(r *web.Request) error {
	identity := r.PostForm.Get("identity")
	if identity != r.PostForm.Get("again") {
		view, err := d.erasuresOf(r)
		if err == nil {
			err = d.find(r, &view, identity)
		}
		if err != nil {
			return err
		}
		return r.Invalid(fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"write the identity exactly as it is, to confirm that all of it is to be erased"), "erasures.html", view)
	}
	id, err := d.Erasures.Start(r.Context(), erasures.Person{
		ProjectID: r.Project.Project.ID, Identity: identity, By: r.Command().Principal.Name(),
	})
	if err != nil {
		return err
	}
	r.Redirect(r.ProjectPath("erasures") + "?id=" + id.String())
	return nil
}
