package readapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"golang.org/x/mod/sumdb/tlog"

	client "github.com/annals-project/annals/client"
	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/internal/zipped"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/why"
)

// projectList is all projects of an organization.
type projectList struct {
	Projects []tenants.ProjectUse `json:"projects"`
}

type projectAPI struct {
	queries projects
}

// list is GET /api/v1/projects.
func (a projectAPI) list(c echo.Context) error {
	found, err := a.queries.Projects(c.Request().Context(), httpx.Principal(c).OrganizationID)
	if err != nil {
		return err
	}
	views := make([]tenants.ProjectUse, len(found))
	for i, p := range found {
		views[i] = p.View()
	}
	return c.JSON(http.StatusOK, projectList{Projects: views})
}

// projectAnswer is the JSON for a project key.
type projectAnswer struct {
	Month   client.UsageMonth   `json:"month"`
	Balance client.UsageBalance `json:"balance"`
	Project client.ProjectUsage `json:"project"`
	Metered bool                `json:"metered"`
}

// organizationAnswer is the JSON for a management key.
type organizationAnswer struct {
	Month    client.UsageMonth     `json:"month"`
	Balance  cappedBalance         `json:"balance"`
	Projects []client.ProjectUsage `json:"projects"`
	Metered  bool                  `json:"metered"`
}

// cappedBalance is a balance with the spend cap of the organization, null for none. Its field hides the one of the
// balance, which is omitted if it is null.
type cappedBalance struct {
	client.UsageBalance
	SpendCap *json.Number `json:"spendCap"`
}

type usageAPI struct {
	queries usages
}

// get is GET /api/v1/usage.
func (a usageAPI) get(c echo.Context) error {
	principal := httpx.Principal(c)
	u, err := a.queries.Usage(c.Request().Context(), principal, httpx.ReceivedAt(c))
	if err != nil {
		return err
	}
	month, balance := client.UsageMonth(u.Month), balanceOf(u.Balance)
	projects := make([]client.ProjectUsage, len(u.Projects))
	for i, p := range u.Projects {
		projects[i] = client.ProjectUsage{
			Slug: p.Slug, Credits: credits(p.ChargedTenths), Ingestions: p.Used.Ingestions, Recalls: p.Used.Recalls,
			CreditCap: credits(p.CreditCapTenths), CreditCapLeft: credits(p.CreditCapLeftTenths()),
			IngestionCap: p.IngestionCap, IngestionCapLeft: p.IngestionCapLeft(),
		}
	}
	if principal.Kind != auth.ManagementKey {
		return c.JSON(http.StatusOK, projectAnswer{month, balance, projects[0], u.Metered()})
	}
	return c.JSON(http.StatusOK,
		organizationAnswer{month, cappedBalance{balance, credits(u.SpendCapTenths)}, projects, u.Metered()})
}

// balanceOf returns the credits of a metered plan, and only nulls without metering.
func balanceOf(b metering.Balance) client.UsageBalance {
	if !b.Plan.Metered() {
		return client.UsageBalance{}
	}
	return client.UsageBalance{
		Left: credits(new(b.LeftTenths())), Included: credits(&b.IncludedTenths), Bought: credits(&b.BoughtTenths),
		RolledOver: credits(&b.RolledOverTenths), Spent: credits(&b.SpentTenths),
	}
}

// credits returns tenths of a credit as a number with at most one decimal digit, nil for nil.
func credits(tenths *int64) *json.Number {
	if tenths == nil {
		return nil
	}
	return new(metering.Credits(*tenths))
}

// requestLog reads the logged calls of a project, with what became of them.
type requestLog interface {
	// Get reads one call at an instant. The fault is not-found if the project has no such call.
	Get(ctx context.Context, project auth.Project, requestID uuid.UUID, at time.Time) (why.CallDetail, error)
	List(ctx context.Context, project auth.Project, q requestlog.Query) (why.CallPage, error)
	Histogram(ctx context.Context, project auth.Project, q requestlog.Query) (requestlog.Histogram, error)
}

// requestDetail is the JSON of GET /api/v1/requests/:requestId. Payload is null, and PayloadExpired
// true, if the bodies are not stored, or no longer.
type requestDetail struct {
	client.RequestEntry
	RequestBytes     int64                  `json:"requestBytes"`
	ResponseBytes    int64                  `json:"responseBytes"`
	RequestHeaders   json.RawMessage        `json:"requestHeaders"`
	ResponseHeaders  json.RawMessage        `json:"responseHeaders"`
	Payload          *client.RequestPayload `json:"payload"`
	PayloadExpired   bool                   `json:"payloadExpired"`
	PayloadExpiresAt *time.Time             `json:"payloadExpiresAt"`
}

// requestAPI serves the request log. Its calls are not logged.
type requestAPI struct {
	queries requestLog
	terms   metering.PlanTerms
}

// list is GET /api/v1/requests.
func (a requestAPI) list(c echo.Context) error {
	p := httpx.Principal(c)
	q, err := why.CallQueryOf(httpx.Query(c), httpx.ReceivedAt(c), p.Project, true)
	if err != nil {
		return err
	}
	page, err := a.queries.List(c.Request().Context(), p.Project, q)
	if err != nil {
		return err
	}
	answer := client.RequestList{
		Project: p.Project.Slug, From: q.From, To: q.To, TotalCount: int(page.TotalCount), HasMore: page.HasMore,
		PayloadRetentionDays: a.terms.Of(p.Limits.Plan).RetentionDays, Requests: make([]client.RequestEntry, len(page.Calls)),
	}
	for i, call := range page.Calls {
		answer.Requests[i] = requestEntryOf(call)
	}
	if page.EndCursor != nil {
		cursor := page.EndCursor.String()
		answer.EndCursor = &cursor
	}
	return c.JSON(http.StatusOK, answer)
}

func requestEntryOf(e why.Call) client.RequestEntry {
	v := client.RequestEntry{
		RequestID: e.RequestID.String(), ReceivedAt: e.ReceivedAt, Method: e.Method, Path: e.Path, Status: e.Status,
		ErrorCode: optional(e.ErrorCode), Outcome: e.Outcome, DurationMs: float64(e.Duration.Microseconds()) / 1000,
		Key: client.RequestKey(e.Key), Identity: e.Identity, Phase: e.Phase,
		Credits: credits(e.CreditTenths),
	}
	if e.IngestionID != nil {
		v.IngestionID = new(e.IngestionID.String())
	}
	if e.Webhook != nil {
		v.Webhook = &client.RequestWebhook{ID: e.Webhook.ID, Name: e.Webhook.Name}
		v.Verdict = optional(e.Webhook.Verdict) // null for an event that was refused
	}
	return v
}

// get is GET /api/v1/requests/:requestId.
func (a requestAPI) get(c echo.Context) error {
	id, err := httpx.PathUUID(c, "requestId")
	if err != nil {
		return err
	}
	found, err := a.queries.Get(c.Request().Context(), httpx.Principal(c).Project, id, httpx.ReceivedAt(c))
	if err != nil {
		return err
	}
	call := found.Logged
	detail := requestDetail{
		RequestEntry: requestEntryOf(found.Call), RequestBytes: call.RequestBytes, ResponseBytes: call.ResponseBytes,
		RequestHeaders: call.RequestHeaders, ResponseHeaders: call.ResponseHeaders,
		PayloadExpired: call.Payload == nil, PayloadExpiresAt: found.ExpiresAt,
	}
	if w := call.Webhook; w != nil {
		detail.Webhook = &client.RequestWebhook{
			ID: w.ID, Name: w.Name, EventID: w.EventID, Verdict: w.Verdict, Test: w.Test, Replay: w.Replay,
		}
		if w.DroppedBy != nil {
			detail.Webhook.DroppedBy = *w.DroppedBy
		}
	}
	if call.Payload != nil {
		detail.Payload = &client.RequestPayload{
			Request:           strings.ToValidUTF8(string(call.Payload.Request), "\uFFFD"),
			Response:          strings.ToValidUTF8(string(call.Payload.Response), "\uFFFD"),
			RequestTruncated:  call.Payload.RequestTruncated,
			ResponseTruncated: call.Payload.ResponseTruncated,
		}
	}
	return c.JSON(http.StatusOK, detail)
}

// histogram is GET /api/v1/requests/histogram.
func (a requestAPI) histogram(c echo.Context) error {
	p := httpx.Principal(c)
	q, err := why.CallQueryOf(httpx.Query(c), httpx.ReceivedAt(c), p.Project, false)
	if err != nil {
		return err
	}
	h, err := a.queries.Histogram(c.Request().Context(), p.Project, q)
	if err != nil {
		return err
	}
	answer := client.RequestHistogram{
		Project: p.Project.Slug, From: q.From, To: q.To, BucketMinutes: h.BucketMinutes,
		Totals: totalsOf(h.Totals), Buckets: make([]client.RequestBucket, len(h.Buckets)),
	}
	for i, b := range h.Buckets {
		answer.Buckets[i] = client.RequestBucket{Start: b.Start, RequestTotals: totalsOf(b.Totals)}
	}
	return c.JSON(http.StatusOK, answer)
}

func totalsOf(t requestlog.Totals) client.RequestTotals {
	return client.RequestTotals{Accepted: int(t.Accepted), FailedLater: int(t.FailedLater), Rejected: int(t.Rejected)}
}

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
