package operatorapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
)

// The operations that erase a person. Each may be repeated, and a person is erased once all of them were called and
// FindPerson finds nothing: DeletePerson until nothing is left, then ForgetPerson, then EraseNow.
var (
	FindPerson   = Operation[PersonRequest, Person]{http.MethodPost, "/operator/people/find"}
	DeletePerson = Operation[PersonRequest, DeletedPerson]{http.MethodPost, "/operator/people/delete"}
	ForgetPerson = Operation[PersonRequest, ForgottenPerson]{http.MethodPost, "/operator/people/forget"}
)

// deletedAtOnce is how many data points one DeletePerson deletes at most.
const deletedAtOnce = 10 * limit.DeletionIDs

// PersonRequest names an identity of a project. Target.Organization is a name or an id, "" for any.
type PersonRequest struct {
	Target
	Project  string `json:"project"`
	Identity string `json:"identity"`
	// Since is Person.Position of an earlier FindPerson, 0 for none.
	Since uint64 `json:"since,omitempty"`
}

// Person is what a project holds of an identity.
type Person struct {
	// Newest counts the data points whose newest revision the identity wrote, Earlier those of which it wrote earlier
	// revisions only.
	Newest  int `json:"newest"`
	Earlier int `json:"earlier"`
	// HasRecord reports whether the identity has a directory record.
	HasRecord bool `json:"hasRecord"`
	// Position is the position of the log that this shows. Uncleaned counts the deletions of the project up to Since,
	// and the removal of the record, that are not erased from the disk.
	Position  uint64 `json:"position"`
	Uncleaned int    `json:"uncleaned"`
}

// DeletedPerson is what one DeletePerson deleted.
type DeletedPerson struct {
	Receipts []PersonReceipt `json:"receipts"`
	// More reports whether there may be more.
	More bool `json:"more"`
}

// PersonReceipt is the receipt of one deletion.
type PersonReceipt struct {
	OperationID uuid.UUID `json:"operationId"`
	DataPoints  int       `json:"dataPoints"`
}

// ForgottenPerson is what ForgetPerson removed.
type ForgottenPerson struct {
	// Record reports whether it removed the directory record, Calls how many calls of the request log it blanked: all of
	// the project. Called reports whether one of them was a call as the identity.
	Record bool `json:"record"`
	Calls  int  `json:"calls"`
	Called bool `json:"called"`
}

// People erases people.
type People struct {
	Commands *commands.Service
	Projects ProjectFinder
	Queries  datapoints.Queries
	DB       *pgxpool.Pool
	Calls    interface {
		BlankPerson(ctx context.Context, project uuid.UUID, identity string) (calls int, called bool, err error)
	}
	// Vacuum purges from the disk what Calls blanked.
	Vacuum interface {
		Vacuum(ctx context.Context) (tables int, err error)
	}
	Log interface {
		Head(ctx context.Context) (eventstore.Position, error)
	}
	Waiter interface {
		Wait(ctx context.Context, position eventstore.Position, projections ...string) error
	}
	Now func() time.Time
}

// Routes returns the routes of the operations.
func (p People) Routes() []Route {
	return []Route{FindPerson.Serve(p.find), DeletePerson.Serve(p.delete), ForgetPerson.Serve(p.forget)}
}

// project waits until the tables show the head of the log, and finds the project.
func (p People) project(ctx context.Context, in PersonRequest) (access.Project, eventstore.Position, error) {
	if in.Identity == "" {
		return access.Project{}, 0, &refusedError{errInvalid, "an identity must be named"}
	}
	ctx, cancel := context.WithTimeout(ctx, exportWait)
	defer cancel()
	head, err := p.Log.Head(ctx)
	if err == nil {
		err = p.Waiter.Wait(ctx, head, projection.Access, projection.DataPoints, projection.Directory)
	}
	if err != nil {
		return access.Project{}, 0, err
	}
	found, err := p.Projects.OnlyProject(ctx, in.Organization, in.Project)
	return found, head, err
}

func (p People) find(ctx context.Context, in PersonRequest) (out Person, err error) {
	project, head, err := p.project(ctx, in)
	if err != nil {
		return out, err
	}
	authored, err := p.Queries.CountAuthored(ctx, project.ID, in.Identity)
	if err != nil {
		return out, err
	}
	out = Person{Newest: authored.Newest, Earlier: authored.Earlier, Position: uint64(head)}
	if out.Uncleaned, err = p.Queries.CountUncleaned(ctx, project.ID, eventstore.Position(in.Since)); err != nil {
		return out, err
	}
	record := stream.IdentityID(project.Namespace, in.Identity)
	var open bool
	err = p.DB.QueryRow(ctx, `select exists (select from directory.identities where id = $1),
		exists (select from directory.removals where id = $1)`, record).Scan(&out.HasRecord, &open)
	if err != nil {
		return out, fmt.Errorf("find a record: %w", err)
	}
	if open {
		out.Uncleaned++
	}
	return out, nil
}

func (p People) call(in PersonRequest, project access.Project) commands.Call {
	call := CallBy(in.By, p.Now())
	call.Principal.OrganizationID, call.Principal.Project = project.OrganizationID, project.Project
	return call
}

// delete deletes some of the data points with the bulk deletion that clients use.
func (p People) delete(ctx context.Context, in PersonRequest) (out DeletedPerson, err error) {
	out.Receipts = []PersonReceipt{}
	project, _, err := p.project(ctx, in)
	if err != nil {
		return out, err
	}
	ids, err := p.Queries.ListAuthored(ctx, project.ID, in.Identity, deletedAtOnce)
	if err != nil {
		return out, err
	}
	out.More = len(ids) == deletedAtOnce
	for len(ids) > 0 {
		some := ids[:min(len(ids), limit.DeletionIDs)]
		receipt, err := p.Commands.DeleteDataPoints(ctx, p.call(in, project), some)
		if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeDataPointNotFound {
			out.More = true // a client deleted one of them since: list again
			return out, nil
		}
		if err != nil {
			return out, refusedFor(err)
		}
		out.Receipts = append(out.Receipts, PersonReceipt{receipt.OperationID, len(some)})
		ids = ids[len(some):]
	}
	return out, nil
}

// forget removes the record, and then the name from the request log: the removal is not logged there.
func (p People) forget(ctx context.Context, in PersonRequest) (out ForgottenPerson, err error) {
	project, _, err := p.project(ctx, in)
	if err != nil {
		return out, err
	}
	err = p.Commands.DeleteIdentity(ctx, p.call(in, project), in.Identity)
	f, is := errors.AsType[*fault.Error](err)
	out.Record = err == nil
	if err != nil && (!is || f.Code != fault.CodeNotFound) {
		return out, refusedFor(err)
	}
	if out.Calls, out.Called, err = p.Calls.BlankPerson(ctx, project.ID, in.Identity); err != nil {
		return out, err
	}
	_, err = p.Vacuum.Vacuum(ctx)
	return out, err
}

// ProjectFinder finds projects for an operator.
type ProjectFinder interface {
	OnlyProject(ctx context.Context, organization, slug string) (access.Project, error)
}

// exportWait bounds the wait for the projections.
const exportWait = time.Minute
