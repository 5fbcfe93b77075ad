package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
)

const api = "/api/v1"

// Ingest sends one data point; idempotencyKey may be "".
func (c *Client) Ingest(ctx context.Context, p DataPoint, idempotencyKey string) (Receipt, error) {
	body := struct {
		DataPoint
		IdempotencyKey string `json:"idempotencyKey,omitempty"`
	}{p, idempotencyKey}
	var out Receipt
	err := c.do(ctx, call{method: http.MethodPost, path: api + "/ingest", body: body}, &out)
	return out, err
}

// IngestBatch sends 1 to 1,000 items, each one JSON object in the shape of a data point; idempotencyKey may be "".
func (c *Client) IngestBatch(
	ctx context.Context, items []json.RawMessage, idempotencyKey string,
) (BatchReceipt, error) {
	body := struct {
		Items          []json.RawMessage `json:"items"`
		IdempotencyKey string            `json:"idempotencyKey,omitempty"`
	}{items, idempotencyKey}
	var out BatchReceipt
	err := c.do(ctx, call{method: http.MethodPost, path: api + "/ingest/batch", body: body}, &out)
	return out, err
}

// Status polls one send.
func (c *Client) Status(ctx context.Context, ingestionID string) (IngestionStatus, error) {
	var out IngestionStatus
	err := c.do(ctx, call{method: http.MethodGet, path: api + "/ingest/" + url.PathEscape(ingestionID)}, &out)
	return out, err
}

// Retry puts a stopped send back into the queue.
func (c *Client) Retry(ctx context.Context, ingestionID string) error {
	return c.do(ctx,
		call{method: http.MethodPost, path: api + "/ingest/" + url.PathEscape(ingestionID) + "/retry", once: true}, nil)
}

// DeleteIngestion deletes the data points of one send.
func (c *Client) DeleteIngestion(ctx context.Context, ingestionID string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: api + "/ingest/" + url.PathEscape(ingestionID)}, nil)
}

// DeleteDataPoints deletes 1 to 1,000 data points by their source ids, all or none. It is sent once: a second
// deletion of the same ids is refused.
func (c *Client) DeleteDataPoints(ctx context.Context, ids []string) (DeletionReceipt, error) {
	body := struct {
		IDs []string `json:"ids"`
	}{ids}
	var out DeletionReceipt
	err := c.do(ctx, call{method: http.MethodPost, path: api + "/data-points/delete", body: body, once: true}, &out)
	return out, err
}

// Estimate returns what files would become and cost. It writes nothing.
func (c *Client) Estimate(ctx context.Context, in EstimateRequest) (Estimate, error) {
	var out Estimate
	err := c.do(ctx, call{method: http.MethodPost, path: api + "/ingest/estimate", body: in}, &out)
	return out, err
}

// Recall asks a question.
func (c *Client) Recall(ctx context.Context, q RecallRequest) (RecallResponse, error) {
	var out RecallResponse
	err := c.do(ctx, call{method: http.MethodPost, path: api + "/recall", body: q}, &out)
	return out, err
}

// ProjectID returns an id of the key's project that no other project has, in this store or another. A server of an
// earlier version sends none: then it is "".
func (c *Client) ProjectID(ctx context.Context) (string, error) {
	got, err := c.send(ctx, call{method: http.MethodGet, path: api + "/usage"})
	if got.project != "" {
		return got.project, nil // also on a refusal, as by a process that serves no reads
	}
	return "", err
}

// Projects lists the projects of the organization. It requires the management key.
func (c *Client) Projects(ctx context.Context) ([]Project, error) {
	var out struct {
		Projects []Project `json:"projects"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: api + "/projects"}, &out)
	return out.Projects, err
}

// CreateProject creates a project. It requires the management key, and is sent once: a second call
// would create a second project.
func (c *Client) CreateProject(ctx context.Context, name string) (Project, error) {
	body := struct {
		Name string `json:"name"`
	}{name}
	var out Project
	err := c.do(ctx, call{method: http.MethodPost, path: api + "/projects", body: body, once: true}, &out)
	return out, err
}

// CreateKey creates a key of a project. It requires the management key, and is sent once.
func (c *Client) CreateKey(ctx context.Context, project, name string) (Key, error) {
	body := struct {
		Name string `json:"name"`
	}{name}
	var out Key
	err := c.do(ctx,
		call{method: http.MethodPost, path: api + "/projects/" + url.PathEscape(project) + "/keys", body: body, once: true},
		&out)
	return out, err
}

// RevokeKey revokes a key of a project. It requires the management key.
func (c *Client) RevokeKey(ctx context.Context, project, keyID string) error {
	path := api + "/projects/" + url.PathEscape(project) + "/keys/" + url.PathEscape(keyID)
	return c.do(ctx, call{method: http.MethodDelete, path: path, once: true}, nil)
}

// Condition is the state of a server.
type Condition struct {
	Ready bool `json:"ready"`
	// Why names what is missing on one line, if the server is not ready.
	Why string `json:"why"`
	// CatchingUp describes how far a start has read the log, "" once it has.
	CatchingUp string `json:"catchingUp,omitempty"`
	// WritesRefused are the reasons why writes are refused at the moment.
	WritesRefused []string `json:"writesRefused,omitempty"`
	// OpenTooLong describes an item or send that is open for too long, "" if there is none.
	OpenTooLong string `json:"openTooLong,omitempty"`
	// RecallElsewhere is the reason why this server does not answer recall, "" if it does.
	RecallElsewhere string `json:"recallElsewhere,omitempty"`
	// RecallIncomplete names the parts of the index that are being filled again. Recall of the
	// projects in them is refused meanwhile.
	RecallIncomplete []string `json:"recallIncomplete,omitempty"`
	// SemanticSearchOff is the reason why recall searches by words alone although vectors are stored, "" if it does not.
	SemanticSearchOff string `json:"semanticSearchOff,omitempty"`
	// ServersDown describes the servers that background work calls and that cannot be used, such as the model.
	ServersDown []string `json:"serversDown,omitempty"`
	// SendsFailed describes the sends that failed lately, "" if none did.
	SendsFailed string `json:"sendsFailed,omitempty"`
	// BulkWritesLost counts the abandoned bulk writes of identities: their rows could not be read.
	BulkWritesLost int `json:"bulkWritesLost,omitempty"`
	// SetAside are the events that projections ignore.
	SetAside []SetAside `json:"setAside,omitempty"`
}

// SetAside is an event that the named projections ignore, or all if none is named.
type SetAside struct {
	Position    uint64   `json:"position"`
	Type        string   `json:"type"`
	Projections []string `json:"projections,omitempty"`
}

// Ready checks once whether the server is ready. If it is not, why names what is missing on one
// line.
func (c *Client) Ready(ctx context.Context) (ready bool, why string, err error) {
	is, err := c.Condition(ctx)
	return is.Ready, is.Why, err
}

// Condition reads the state of the server once.
func (c *Client) Condition(ctx context.Context) (is Condition, err error) {
	got, err := c.attempt(ctx, call{method: http.MethodGet, path: "/readyz"}, nil)
	if err != nil {
		return Condition{}, &UnreachableError{c.base, err}
	}
	remarks := got.body
	if got.status == http.StatusNotFound {
		is.Why = "it has no /readyz; with ANNALS_OPS_ADDR set, that is there: annals status --url http://HOST:PORT"
		return is, nil
	}
	if got.status != http.StatusOK {
		is.Why = notReady(got)
		var envelope struct {
			Data json.RawMessage `json:"data"`
		}
		if json.Unmarshal(got.body, &envelope) != nil {
			return is, nil // the response is not that of the server
		}
		remarks = envelope.Data
	}
	var also struct {
		CatchingUp      string     `json:"catchingUp"`
		WritesRefused   []string   `json:"writesRefused"`
		OpenTooLong     string     `json:"openTooLong"`
		RecallElsewhere string     `json:"recallElsewhere"`
		Incomplete      []string   `json:"recallIncomplete"`
		SemanticOff     string     `json:"semanticSearchOff"`
		ServersDown     []string   `json:"serversDown"`
		SendsFailed     string     `json:"sendsFailed"`
		BulkWritesLost  int        `json:"bulkWritesLost"`
		SetAside        []SetAside `json:"setAside"`
	}
	if json.Unmarshal(remarks, &also) == nil {
		is.WritesRefused, is.RecallElsewhere = also.WritesRefused, also.RecallElsewhere
		is.BulkWritesLost, is.SetAside = also.BulkWritesLost, also.SetAside
		is.RecallIncomplete, is.OpenTooLong = also.Incomplete, also.OpenTooLong
		is.SemanticSearchOff = also.SemanticOff
		is.CatchingUp = also.CatchingUp
		is.ServersDown, is.SendsFailed = also.ServersDown, also.SendsFailed
	}
	is.Ready = got.status == http.StatusOK
	return is, nil
}

// notReady returns the missing parts that the response names, else its text.
func notReady(a answer) string {
	var body struct {
		Data struct {
			NotReady []struct {
				Part     string `json:"part"`
				Reason   string `json:"reason"`
				Position uint64 `json:"position"`
				Cause    string `json:"cause"`
			} `json:"notReady"`
		} `json:"data"`
	}
	if json.Unmarshal(a.body, &body) != nil || len(body.Data.NotReady) == 0 {
		return a.failure("", nil).Error()
	}
	parts := make([]string, len(body.Data.NotReady))
	for i, p := range body.Data.NotReady {
		parts[i] = p.Part + ": " + p.Reason
		if p.Position > 0 {
			parts[i] += fmt.Sprintf(" (position %d)", p.Position)
		}
		if p.Cause != "" {
			parts[i] += ": " + p.Cause
		}
	}
	return strings.Join(parts, "; ")
}

// Metric reads one series of the server's metrics, by its name in the text format. It returns 0 if
// there is no such series.
func (c *Client) Metric(ctx context.Context, series string) (float64, error) {
	got, err := c.attempt(ctx, call{method: http.MethodGet, path: "/metrics"}, nil)
	if err != nil {
		return 0, &UnreachableError{c.base, err}
	}
	if got.status != http.StatusOK {
		return 0, got.failure(c.base, nil)
	}
	for line := range strings.Lines(string(got.body)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return 0, fmt.Errorf("metric %s: %w", series, err)
			}
			return n, nil
		}
	}
	return 0, nil
}

// WaitSettled polls a send until no send of its project is in progress. Stopped sends do not end:
// the status is then Blocked. It ends with ctx.
func (c *Client) WaitSettled(
	ctx context.Context, ingestionID string, progress func(IngestionStatus),
) (IngestionStatus, error) {
	for {
		status, err := c.Status(ctx, ingestionID)
		if err != nil {
			return status, err
		}
		if progress != nil {
			progress(status)
		}
		if status.Settled || status.Blocked {
			return status, nil
		}
		if err := backoff.Pause(ctx, 200*time.Millisecond, nil); err != nil {
			return status, fmt.Errorf("the project has not settled: %w", err)
		}
	}
}
