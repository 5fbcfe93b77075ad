package writeapi

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
)

// identityCommands changes the directory of a project. Every later recall uses an answered change.
type identityCommands interface {
	PutIdentity(
		ctx context.Context, call commands.Call, name string, traits map[string]string,
	) (commands.IdentityReceipt, error)
	PatchIdentity(
		ctx context.Context, call commands.Call, name string, set map[string]string, removed []string,
	) (commands.IdentityReceipt, error)
	DeleteIdentity(ctx context.Context, call commands.Call, name string) error
	BulkIdentities(ctx context.Context, call commands.Call, rows []identity.Row) ([]commands.IdentityStatus, error)
}

// lastSeenReader returns when a record created at createdAt was last seen, nil if not since.
type lastSeenReader interface {
	LastSeen(ctx context.Context, project auth.Project, id uuid.UUID, createdAt time.Time) (*time.Time, error)
}

type identityAPI struct {
	commands identityCommands
	lastSeen lastSeenReader
}

// put is PUT /api/v1/identities/:identity: 200 with the record, created or with its traits
// replaced. traits that are omitted, null or empty remove all; a trait that is null is absent. The
// faults are invalid-request for an identity outside its limits or a body that is not an object,
// and traits-invalid for traits that are not an object of strings, outside their limits, or too
// many or too big together.
func (a identityAPI) put(c echo.Context) error {
	name, changes, err := identityChange(c)
	if err != nil {
		return err
	}
	receipt, err := a.commands.PutIdentity(c.Request().Context(), callOf(c), name, changes.set)
	if err != nil {
		return err
	}
	return a.show(c, receipt)
}

// patch is PATCH /api/v1/identities/:identity: 200 with the record, created if there is none. A
// trait that is null is removed, and an omitted one is unchanged. Its faults are those of put.
func (a identityAPI) patch(c echo.Context) error {
	name, changes, err := identityChange(c)
	if err != nil {
		return err
	}
	receipt, err := a.commands.PatchIdentity(c.Request().Context(), callOf(c), name, changes.set, changes.removed)
	if err != nil {
		return err
	}
	return a.show(c, receipt)
}

// remove is DELETE /api/v1/identities/:identity: 204, or not-found.
func (a identityAPI) remove(c echo.Context) error {
	name, err := identityOf(c)
	if err != nil {
		return err
	}
	if err := a.commands.DeleteIdentity(c.Request().Context(), callOf(c), name); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// bulk is POST /api/v1/identities/bulk: 200 with one status for each distinct identity, in the
// order of first appearance. The fault is bulk-invalid-rows, with the position of the first wrong
// row in data.row, for a body that is not an array of 1 to 1,000 rows, for an invalid row or one
// with more traits than a record can have, and for rows with too many traits together. It is
// conflict if another write of the same records ran at the same time.
func (a identityAPI) bulk(c echo.Context) error {
	body, err := httpx.Body(c, limit.BulkIdentityBody)
	if err != nil {
		return err
	}
	rows, err := rowsOf(body)
	if err != nil {
		return err
	}
	statuses, err := a.commands.BulkIdentities(c.Request().Context(), callOf(c), rows)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, struct {
		Identities []client.BulkStatus `json:"identities"`
	}{identityStatusesOf(statuses)})
}

func (a identityAPI) show(c echo.Context, r commands.IdentityReceipt) error {
	seen, err := a.lastSeen.LastSeen(c.Request().Context(), httpx.Principal(c).Project, r.ID, r.CreatedAt)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, client.Identity{ // only the read of one identity returns its audiences
		Identity: r.Identity, Traits: r.Traits, Origin: string(r.Origin), LastSeenAt: seen,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	})
}

// identityOf returns the identity that the path names.
func identityOf(c echo.Context) (string, error) {
	name, err := httpx.PathParam(c, "identity")
	if err != nil {
		return "", err
	}
	if err := fields.CheckName(name, 1, limit.Identity); err != nil {
		return "", fields.Invalid("identity", "%v", err)
	}
	httpx.NoteOf(c).Identity = name
	return name, nil
}

// identityNames are the names of a change of one identity.
var identityNames = fields.NewNames("traits")

// identityChange reads the request of put and patch.
func identityChange(c echo.Context) (name string, changes traitChanges, err error) {
	if name, err = identityOf(c); err != nil {
		return "", changes, err
	}
	changes, err = httpx.Decode(c, limit.IdentityBody, identityNames, traitsOf)
	return name, changes, err
}
