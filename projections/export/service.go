package export

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
)

// Request selects what an export writes.
type Request struct {
	// Organization is a name or an id, "" for any. Project is a slug.
	Organization string `json:"organization,omitempty"`
	Project      string `json:"project"`
	// Memories adds what was derived.
	Memories bool `json:"memories,omitempty"`
	// From continues an export, nil for a new one.
	From *From `json:"from,omitempty"`
}

// From is where an export continues.
type From struct {
	// AsOf is that of Began.
	AsOf time.Time `json:"asOf"`
	// After is the place of the last mark, nil if there was none.
	After *Place `json:"after,omitempty"`
}

// Began is the beginning of an export.
type Began struct {
	ProjectID uuid.UUID `json:"projectId"`
	// AsOf is the time that the export shows.
	AsOf time.Time `json:"asOf"`
}

// Service exports projects by their names. An export shows everything that was answered before it.
type Service struct {
	Reader   Reader
	Projects interface {
		OnlyProject(ctx context.Context, organization, slug string) (access.Project, error)
	}
	Head projections.Head
	Now  func() time.Time
}

// Begin begins an export, or continues one. Its faults are invalid-request, not-found, conflict and
// service-unavailable.
func (s Service) Begin(ctx context.Context, in Request) (began Began, err error) {
	if in.Project == "" {
		return began, fault.New(fault.Invalid, fault.CodeInvalidRequest, "a project must be named")
	}
	err = s.Head.Await(ctx, projection.Access, projection.DataPoints, projection.Directory, projection.Memories)
	if err != nil {
		return began, err
	}
	project, err := s.Projects.OnlyProject(ctx, in.Organization, in.Project)
	if err != nil {
		return began, err
	}
	began.ProjectID = project.ID
	if in.From != nil {
		began.AsOf = in.From.AsOf
		return began, nil
	}
	began.AsOf, err = s.Reader.AsOf(ctx, project.ID, s.Now())
	return began, err
}

// Write is Reader.Write of an export that began.
func (s Service) Write(ctx context.Context, in Request, began Began, to io.Writer, mark func(Mark) error) error {
	selected := Selection{Project: began.ProjectID, AsOf: began.AsOf, Memories: in.Memories}
	if in.From != nil {
		selected.After = in.From.After
	}
	return s.Reader.Write(ctx, selected, to, mark)
}
