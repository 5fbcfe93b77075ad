package readapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"golang.org/x/mod/sumdb/tlog"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/zipped"
	"github.com/annals-project/annals/projections/audit"
)

// trees reads the trees of the audit log.
type trees interface {
	// Tree returns the tree of an organization. ok is false if it has no leaf.
	Tree(ctx context.Context, organization uuid.UUID) (t audit.Tree, ok bool, err error)
	// Tile returns a tile, or a bundle of entries at level -1. ok is false if the tree is smaller.
	Tile(ctx context.Context, organization uuid.UUID, level int, n int64, width int) (tile []byte, ok bool, err error)
}

// Audit is what the routes of the audit log read.
type Audit struct {
	Trees trees
	// Policy is that of the operator, which names witnesses; "" for none.
	Policy string
	// Prove makes the proofs. The fault is invalid-request, or not-found if there is no such thing, or no checkpoint
	// covers it yet.
	Prove func(ctx context.Context, what ProofRequest) ([]zipped.File, error)
}

// ProofRequest names what is to be proved: an ingestion, a source, a request or a deletion.
type ProofRequest struct {
	Organization      uuid.UUID
	Project, Kind, ID string
}

type auditAPI struct{ Audit }

const (
	// tileHeight is that of C2SP tlog-tiles.
	tileHeight = 8
	// maxTilePath is the most bytes of the path of a tile below its level.
	maxTilePath = 40
	// entries is the level of the bundles of entries, as the path has it.
	entries = "entries"
)

func noTree() error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "there is no audit log of this organization")
}

// organization returns the organization of the path, if the caller may see its tree. That of the deployment is for
// operators alone.
func (a auditAPI) organization(c echo.Context) (uuid.UUID, error) {
	id, err := httpx.PathUUID(c, "organization")
	caller := httpx.Principal(c)
	if err != nil || id == uuid.Nil || caller.Kind != "" && caller.OrganizationID != id {
		return uuid.Nil, noTree()
	}
	return id, nil
}

func (a auditAPI) tree(c echo.Context) (audit.Tree, error) {
	id, err := a.organization(c)
	if err != nil {
		return audit.Tree{}, err
	}
	tree, ok, err := a.Trees.Tree(c.Request().Context(), id)
	if err == nil && !ok {
		err = noTree()
	}
	return tree, err
}

// checkpoint is GET /api/v1/audit/{organization}/checkpoint.
func (a auditAPI) checkpoint(c echo.Context) error {
	tree, err := a.tree(c)
	if err != nil {
		return err
	}
	if tree.Checkpoint == "" {
		return fault.New(fault.NotFound, fault.CodeNotFound, "the audit log has no checkpoint yet; ask again in some seconds")
	}
	return c.String(http.StatusOK, tree.Checkpoint)
}

// policy is GET /api/v1/audit/{organization}/policy.
func (a auditAPI) policy(c echo.Context) error {
	tree, err := a.tree(c)
	if err != nil {
		return err
	}
	if len(tree.Verifiers) == 0 {
		return fault.New(fault.NotFound, fault.CodeNotFound, "the audit log has no key yet; ask again in some seconds")
	}
	witnesses := a.Policy
	if tree.Cosigned == "" {
		witnesses = ""
	}
	return c.String(http.StatusOK, domain.PolicyText(tree.Verifiers, witnesses))
}

// proofKinds are the parameters that name what is to be proved.
var proofKinds = []string{"ingestion", "source", "request", "deletion"}

// proofs is GET /api/v1/audit/{organization}/proofs.
func (a auditAPI) proofs(c echo.Context) error {
	id, err := a.organization(c)
	if err != nil {
		return err
	}
	query, what := httpx.Query(c), ProofRequest{Organization: id}
	what.Project = query.Get("project")
	named := 0
	for _, kind := range proofKinds {
		for _, value := range query[kind] {
			what.Kind, what.ID, named = kind, value, named+1
		}
	}
	if named != 1 || what.ID == "" {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"name one of ingestion, source, request and deletion")
	}
	files, err := a.Prove(c.Request().Context(), what)
	if err != nil {
		return err
	}
	if err := allowance.Reserve(c.Request().Context(), 2*zipped.Size(files)); err != nil {
		return err
	}
	body, err := zipped.Pack(files)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderContentDisposition, `attachment; filename="proofs.zip"`)
	return c.Blob(http.StatusOK, echo.MIMEOctetStream, body)
}

// tile is GET /api/v1/audit/{organization}/tile/{level}/{path}.
func (a auditAPI) tile(c echo.Context) error {
	id, err := a.organization(c)
	if err != nil {
		return err
	}
	t, err := tileOf(c)
	if err != nil {
		return err
	}
	tile, ok, err := a.Trees.Tile(c.Request().Context(), id, t.L, t.N, t.W)
	if err != nil {
		return err
	}
	if !ok {
		return fault.New(fault.NotFound, fault.CodeNotFound, "the audit log has no such tile")
	}
	if t.W == 1<<tileHeight {
		scope := "private"
		if httpx.Principal(c).Kind == "" {
			scope = "public"
		}
		c.Response().Header().Set(echo.HeaderCacheControl, scope+", max-age=31536000, immutable")
	}
	return c.Blob(http.StatusOK, echo.MIMEOctetStream, tile)
}

// tileOf reads the path of a tile. The form of package tlog has the height and another name for entries.
func tileOf(c echo.Context) (tlog.Tile, error) {
	bad := fault.New(fault.Invalid, fault.CodeInvalidRequest,
		"this is no path of a tile: want a level from 0 on, or entries, and a number such as 007, x001/067 or 067.p/12")
	level, err := httpx.PathParam(c, "level")
	if err != nil {
		return tlog.Tile{}, err
	}
	rest, err := httpx.PathRest(c)
	if err != nil {
		return tlog.Tile{}, err
	}
	switch {
	case len(level) > len(entries) || len(rest) > maxTilePath:
		return tlog.Tile{}, bad
	case level == entries:
		level = "data"
	case strings.Trim(level, "0123456789") != "":
		return tlog.Tile{}, bad
	}
	t, err := tlog.ParseTilePath(fmt.Sprintf("tile/%d/%s/%s", tileHeight, level, rest))
	if err != nil {
		return tlog.Tile{}, bad
	}
	return t, nil
}
