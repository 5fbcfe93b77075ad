package annals

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Project is a project of an organization. Caps are nil if none is set.
type Project struct {
	Slug         string `json:"slug"`
	Name         string `json:"name"`
	Description  string `json:"description"`
	IsArchived   bool   `json:"isArchived"`
	MemoryCount  int64  `json:"memoryCount"`
	IngestionCap *int64 `json:"ingestionCap"`
	// MonthIngestions counts the data points of the current calendar month in UTC, MonthCredits their credits, nil if
	// nothing is metered.
	MonthIngestions int64        `json:"monthIngestions"`
	CreditCap       *json.Number `json:"creditCap"`
	MonthCredits    *json.Number `json:"monthCredits"`
	CreatedAt       time.Time    `json:"createdAt"`
}

// ProjectList is all projects of an organization.
type ProjectList struct {
	Projects []Project `json:"projects"`
}

// NewProject is a project to create. Its slug is made from the name.
type NewProject struct {
	Name string `json:"name"`
}

// NewProjectKey is a key to create.
type NewProjectKey struct {
	// Project is the slug of its project.
	Project string `json:"-"`
	Name    string `json:"name"`
}

// ProjectKey is a key of a project.
type ProjectKey struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	KeyPrefix string    `json:"keyPrefix"`
	KeySuffix string    `json:"keySuffix"`
	CreatedAt time.Time `json:"createdAt"`
	// Key is the clear value. Only the creation returns it.
	Key string `json:"key"`
}

// ListProjects returns the projects, archived ones too. It needs the management key.
func (c *Client) ListProjects(ctx context.Context) (*ProjectList, error) {
	return get[ProjectList](ctx, c, path("projects"), nil)
}

// Projects yields the projects as ListProjects returns them.
func (c *Client) Projects(ctx context.Context) iter.Seq2[Project, error] {
	return pages("", func(string) ([]Project, *string, error) {
		list, err := c.ListProjects(ctx)
		if err != nil {
			return nil, nil, err
		}
		return list.Projects, nil, nil
	})
}

// CreateProject creates a project. It needs the management key.
func (c *Client) CreateProject(ctx context.Context, p NewProject) (*Project, error) {
	return send[Project](ctx, c, call{method: http.MethodPost, path: path("projects"), in: p})
}

// CreateProjectKey creates a key of a project. It needs the management key.
func (c *Client) CreateProjectKey(ctx context.Context, k NewProjectKey) (*ProjectKey, error) {
	return send[ProjectKey](ctx, c, call{method: http.MethodPost, path: path("projects", k.Project, "keys"), in: k})
}

// RevokeProjectKey revokes a key by its id: it is refused from its next call on. It needs the management key.
func (c *Client) RevokeProjectKey(ctx context.Context, project, keyID string) error {
	return c.discard(ctx, call{
		method: http.MethodDelete, path: path("projects", project, "keys", keyID), repeat: deletion,
	})
}

// Usage is what was used in the current month, and what is left. Credits are nil if nothing is metered.
type Usage struct {
	Month   UsageMonth   `json:"month"`
	Balance UsageBalance `json:"balance"`
	// Project is that of a project key.
	Project *ProjectUsage `json:"project,omitempty"`
	// Projects are the live ones, for a management key, heaviest spender first.
	Projects []ProjectUsage `json:"projects,omitempty"`
	Metered  bool           `json:"metered"`
}

// UsageMonth is a calendar month in UTC.
type UsageMonth struct {
	From     time.Time  `json:"from"`
	To       time.Time  `json:"to"`
	ResetsAt *time.Time `json:"resetsAt"`
}

// UsageBalance is the credits of the organization: Left is Included, Bought and RolledOver without Spent.
type UsageBalance struct {
	Left       *json.Number `json:"left"`
	Included   *json.Number `json:"included"`
	Bought     *json.Number `json:"bought"`
	RolledOver *json.Number `json:"rolledOver"`
	Spent      *json.Number `json:"spent"`
	// SpendCap is what the organization may spend a month, for a management key.
	SpendCap *json.Number `json:"spendCap,omitempty"`
}

// ProjectUsage is what a project used. Caps, and what is left of them, are nil if none is set.
type ProjectUsage struct {
	Slug             string       `json:"slug"`
	Credits          *json.Number `json:"credits"`
	Ingestions       int64        `json:"ingestions"`
	Recalls          int64        `json:"recalls"`
	CreditCap        *json.Number `json:"creditCap"`
	CreditCapLeft    *json.Number `json:"creditCapLeft"`
	IngestionCap     *int64       `json:"ingestionCap"`
	IngestionCapLeft *int64       `json:"ingestionCapLeft"`
}

// GetUsage returns the usage of the project of a project key, or of the organization of a management key.
func (c *Client) GetUsage(ctx context.Context) (*Usage, error) {
	return get[Usage](ctx, c, path("usage"), nil)
}

// ProjectID returns an id of the key's project that no other project has, in this service or another one.
func (c *Client) ProjectID(ctx context.Context) (string, error) {
	got, err := c.do(ctx, call{method: http.MethodGet, path: path("usage"), repeat: safe})
	if id := got.header.Get("X-Annals-Project"); id != "" {
		return id, nil // also on a refusal, as by a process that serves no reads
	}
	return "", err
}

// RequestFilter selects calls of the request log. All that is set must match.
type RequestFilter struct {
	// From and To bound when a call was received, at most 31 days. "" is 24 hours before the end, and now.
	From, To string
	// Status are HTTP statuses, StatusClass classes such as 4xx.
	Status      []int
	StatusClass []string
	// Endpoint are methods with routes, such as "POST /api/v1/ingest".
	Endpoint []string
	KeyName  []string
	// Search is a request id, a source id, or a part of a key name.
	Search string
}

func (f RequestFilter) query() params {
	query := params{}
	query.text("from", f.From)
	query.text("to", f.To)
	query.number("status", f.Status...)
	query.text("statusClass", f.StatusClass...)
	query.text("endpoint", f.Endpoint...)
	query.text("keyName", f.KeyName...)
	query.text("search", f.Search)
	return query
}

// ListRequestsRequest selects a page of the request log.
type ListRequestsRequest struct {
	RequestFilter
	// After is the EndCursor of the page before.
	After string
	// First is the most calls of the page, 1 to 100; 0 is 25.
	First int
}

// RequestList is one page of the request log.
type RequestList struct {
	// Project is the slug.
	Project string    `json:"project"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	// TotalCount counts the calls of all pages.
	TotalCount           int            `json:"totalCount"`
	HasMore              bool           `json:"hasMore"`
	EndCursor            *string        `json:"endCursor"`
	PayloadRetentionDays int            `json:"payloadRetentionDays"`
	Requests             []RequestEntry `json:"requests"`
}

// RequestEntry is a call as the request log lists it.
type RequestEntry struct {
	RequestID  string    `json:"requestId"`
	ReceivedAt time.Time `json:"receivedAt"`
	Method     string    `json:"method"`
	Path       string    `json:"path"`
	Status     int       `json:"status"`
	ErrorCode  *string   `json:"errorCode"`
	// Outcome is Accepted, FailedLater, Rejected or Dropped.
	Outcome     string          `json:"outcome"`
	DurationMs  float64         `json:"durationMs"`
	Key         RequestKey      `json:"key"`
	Identity    *string         `json:"identity"`
	IngestionID *string         `json:"ingestionId"`
	Phase       *string         `json:"phase"`
	Credits     *json.Number    `json:"credits"`
	Webhook     *RequestWebhook `json:"webhook"`
	Verdict     *string         `json:"verdict"`
}

// RequestKey names the key of a call.
type RequestKey struct {
	Name   string `json:"name"`
	Prefix string `json:"prefix"`
}

// RequestWebhook is the webhook of a received event.
type RequestWebhook struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	EventID   string `json:"eventId,omitempty"`
	Verdict   string `json:"verdict,omitempty"`
	DroppedBy string `json:"droppedBy,omitempty"`
	// Test reports that a person sent the event from the console to try the webhook.
	Test bool `json:"test,omitempty"`
	// Replay reports that a person sent the body of an event before again, from the console.
	Replay bool `json:"replay,omitempty"`
}

// RequestDetail is a call with what is stored of it.
type RequestDetail struct {
	RequestEntry
	RequestBytes    int64             `json:"requestBytes"`
	ResponseBytes   int64             `json:"responseBytes"`
	RequestHeaders  map[string]string `json:"requestHeaders"`
	ResponseHeaders map[string]string `json:"responseHeaders"`
	// Payload is nil once it is expired.
	Payload          *RequestPayload `json:"payload"`
	PayloadExpired   bool            `json:"payloadExpired"`
	PayloadExpiresAt *time.Time      `json:"payloadExpiresAt"`
}

// RequestPayload is the bodies of a call.
type RequestPayload struct {
	Request           string `json:"request"`
	Response          string `json:"response"`
	RequestTruncated  bool   `json:"requestTruncated"`
	ResponseTruncated bool   `json:"responseTruncated"`
}

// RequestHistogram counts calls over time.
type RequestHistogram struct {
	Project       string          `json:"project"`
	From          time.Time       `json:"from"`
	To            time.Time       `json:"to"`
	BucketMinutes int             `json:"bucketMinutes"`
	Totals        RequestTotals   `json:"totals"`
	Buckets       []RequestBucket `json:"buckets"`
}

// RequestTotals counts calls by their outcome.
type RequestTotals struct {
	Accepted    int `json:"accepted"`
	FailedLater int `json:"failedLater"`
	Rejected    int `json:"rejected"`
}

// RequestBucket counts the calls of BucketMinutes minutes.
type RequestBucket struct {
	Start time.Time `json:"start"`
	RequestTotals
}

// ListRequests returns one page of the request log, newest first. [Client.Requests] reads all.
func (c *Client) ListRequests(ctx context.Context, r ListRequestsRequest) (*RequestList, error) {
	query := r.query()
	query.text("after", r.After)
	query.number("first", r.First)
	return get[RequestList](ctx, c, path("requests"), url.Values(query))
}

// Requests yields the calls of the request log, newest first.
func (c *Client) Requests(ctx context.Context, r ListRequestsRequest) iter.Seq2[RequestEntry, error] {
	return pages(r.After, func(after string) ([]RequestEntry, *string, error) {
		r.After = after
		page, err := c.ListRequests(ctx, r)
		if err != nil {
			return nil, nil, err
		}
		return page.Requests, following(page.HasMore, page.EndCursor), nil
	})
}

// CountRequests counts the calls of the request log over time.
func (c *Client) CountRequests(ctx context.Context, f RequestFilter) (*RequestHistogram, error) {
	return get[RequestHistogram](ctx, c, path("requests", "histogram"), url.Values(f.query()))
}

// GetRequest returns one call of the request log.
func (c *Client) GetRequest(ctx context.Context, requestID string) (*RequestDetail, error) {
	return get[RequestDetail](ctx, c, path("requests", requestID), nil)
}

// TileRequest names a tile of the audit log of an organization, as C2SP tlog-tiles does.
type TileRequest struct {
	Organization string
	// Level is that of the tile from 0 on, or "entries".
	Level string
	// Path is its number, such as "x001/067", and ".p/" with its width if it is not full.
	Path string
}

// ProofsRequest names what is to be proved: one of the ids.
type ProofsRequest struct {
	Organization string
	// Ingestion, Source, Request and Deletion are the ids of a send, of a data point, of a call and of a deletion.
	Ingestion, Source, Request, Deletion string
	// Project is the slug of the project.
	Project string
}

// GetCheckpoint returns the newest signed checkpoint of the audit log of an organization. It and the other reads of the
// audit log need the management key, unless the deployment publishes its audit log.
func (c *Client) GetCheckpoint(ctx context.Context, organization string) ([]byte, error) {
	return c.bytes(ctx, path("audit", organization, "checkpoint"), nil)
}

// GetAuditPolicy returns the public keys that verify the audit log of an organization, as a tlog-policy file.
func (c *Client) GetAuditPolicy(ctx context.Context, organization string) ([]byte, error) {
	return c.bytes(ctx, path("audit", organization, "policy"), nil)
}

// GetTile returns a tile of the audit log.
func (c *Client) GetTile(ctx context.Context, what TileRequest) ([]byte, error) {
	return c.bytes(ctx, path("audit", what.Organization, "tile", what.Level, what.Path), nil)
}

// GetProofs returns a zip file of proofs, one for each event of what is proved. It needs the management key.
func (c *Client) GetProofs(ctx context.Context, what ProofsRequest) ([]byte, error) {
	query := params{}
	query.text("ingestion", what.Ingestion)
	query.text("source", what.Source)
	query.text("request", what.Request)
	query.text("deletion", what.Deletion)
	query.text("project", what.Project)
	return c.bytes(ctx, path("audit", what.Organization, "proofs"), url.Values(query))
}

// bytes reads an answer that is no JSON.
func (c *Client) bytes(ctx context.Context, path string, query url.Values) (answer []byte, err error) {
	read := func(body io.Reader) error {
		answer, err = io.ReadAll(&bounded{body, maxResponse})
		return err
	}
	_, err = c.do(ctx, call{method: http.MethodGet, path: path, query: query, repeat: safe, read: read})
	return answer, err
}
