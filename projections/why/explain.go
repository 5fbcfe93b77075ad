package why

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/datapoints"
)

// sends explains the sends of a project.
type sends interface {
	// Explain reads a send by its id or that of its request, and at most limit of its items. ok is
	// false if the projection has no such send. indexed is the position of the recall index.
	Explain(
		ctx context.Context, project auth.Project, id uuid.UUID, limit int, indexed eventstore.Position,
	) (s datapoints.Explained, ok bool, err error)
}

// progress reads the positions of projections.
type progress interface {
	// Position returns the position up to which a projection has applied everything.
	Position(ctx context.Context, name string) (eventstore.Position, error)
}

// loggedCalls reads the request log.
type loggedCalls interface {
	// Get reads a call. The fault is not-found if the log has no such call of the project.
	Get(ctx context.Context, project, requestID uuid.UUID) (requestlog.Call, error)
}

// Explainer explains sends and calls.
type Explainer struct {
	Sends    sends
	Progress progress
	Calls    loggedCalls
	Head     projections.Head
}

// Explanation is what became of a call.
type Explanation struct {
	// Send is nil for a call that made no send.
	Send      *datapoints.Explained
	RequestID uuid.UUID
	// Status and ErrorCode are those of the answer to the call.
	Status    int
	ErrorCode string
	// Retryable is false for a send that failed and would fail again.
	Retryable bool
	// Next is the sentence that names the next step.
	Next string
}

const (
	// logDelay is the time within which a call is in the request log, logPoll the pause between two
	// reads of it.
	logDelay = 2 * time.Second
	logPoll  = 100 * time.Millisecond
)

// Explain explains a send by its id, or a call by that of its request. It knows every call that was answered
// before. The fault is not-found if the project has neither.
func (q Explainer) Explain(ctx context.Context, project auth.Project, id uuid.UUID) (Explanation, error) {
	send, ok, err := q.send(ctx, project, id)
	var call requestlog.Call
	if err == nil && !ok {
		send, call, ok, err = q.search(ctx, project, id)
	}
	if err != nil {
		return Explanation{}, err
	}
	if !ok {
		return Explanation{
			RequestID: call.RequestID, Status: call.Status, ErrorCode: call.ErrorCode,
			Next: nextOfCall(call.Status, call.ErrorCode),
		}, nil
	}
	status, err := q.answered(ctx, project, send)
	return Explanation{
		Send: &send, RequestID: send.RequestID, Status: status, Next: nextOfSend(send),
		Retryable: send.Failure == nil || send.Failure.Code != ingestion.ContentRejected,
	}, err
}

// answered returns the status with which a send was answered. A send that changed nothing was answered
// with 200 or, for example through a webhook, with 202: the request log knows which, as long as it keeps
// the call.
func (q Explainer) answered(ctx context.Context, project auth.Project, s datapoints.Explained) (int, error) {
	if s.Phase != datapoints.PhaseNothingChanged {
		return http.StatusAccepted, nil
	}
	call, err := q.awaitCall(ctx, project, s.RequestID)
	switch {
	case isNotFound(err):
		return http.StatusOK, nil
	case err != nil:
		return 0, err
	case call.Status >= http.StatusBadRequest:
		return http.StatusOK, nil // the send was stored after the call had failed
	default:
		return call.Status, nil
	}
}

// send reads a send at the position of the projection.
func (q Explainer) send(
	ctx context.Context, project auth.Project, id uuid.UUID,
) (s datapoints.Explained, ok bool, err error) {
	// The position is read first, so that an item that is called searchable is.
	indexed, err := q.Progress.Position(ctx, projection.RecallIndex)
	if err != nil {
		return datapoints.Explained{}, false, err
	}
	return q.Sends.Explain(ctx, project, id, limit.ExplainedItems, indexed)
}

// search finds what the projection has not applied yet: a logged call with its send, or another
// send. ok is false if the call made no send. The fault is not-found if the project has neither.
func (q Explainer) search(
	ctx context.Context, project auth.Project, id uuid.UUID,
) (s datapoints.Explained, call requestlog.Call, ok bool, err error) {
	call, err = q.Calls.Get(ctx, project.ID, id)
	if isNotFound(err) {
		if err = q.Head.Await(ctx, projection.DataPoints); err != nil {
			return s, call, false, err
		}
		if s, ok, err = q.send(ctx, project, id); ok || err != nil {
			return s, call, ok, err
		}
		call, err = q.awaitCall(ctx, project, id)
	}
	if err != nil || call.IngestionID == nil || call.Status >= http.StatusBadRequest {
		return s, call, false, err
	}
	_, err = again(ctx, q.Head, func() (bool, error) {
		s, ok, err = q.send(ctx, project, *call.IngestionID)
		return ok, err
	}, projection.DataPoints)
	return s, call, ok, err
}

// awaitCall reads a call repeatedly until it must be in the log.
func (q Explainer) awaitCall(ctx context.Context, project auth.Project, id uuid.UUID) (requestlog.Call, error) {
	end := time.Now().Add(logDelay)
	if made := madeAt(id).Add(logDelay); made.Before(end) {
		end = made
	}
	for {
		call, err := q.Calls.Get(ctx, project.ID, id)
		if !isNotFound(err) || !time.Now().Before(end) {
			if isNotFound(err) {
				err = fault.New(fault.NotFound, fault.CodeNotFound, "the project has no ingestion and no logged request %s", id)
			}
			return call, err
		}
		_ = backoff.Pause(ctx, logPoll, nil)
	}
}

// madeAt returns the time that the id of a request holds, the zero time for another id.
func madeAt(id uuid.UUID) time.Time {
	if id.Version() != 7 {
		return time.Time{}
	}
	return time.Unix(id.Time().UnixTime())
}

func isNotFound(err error) bool {
	f, is := errors.AsType[*fault.Error](err)
	return is && f.Kind == fault.NotFound
}

// nextStep is a row of the table of next steps. The OpenAPI document prints the table.
type nextStep struct {
	phase string
	// when are the codes that the row is for, or one of the conditions below; nil for a phase with one
	// row.
	when []string
	next string
}

// The conditions that are no codes.
const (
	whenDeleted  = "its data points were deleted"
	whenOutdated = "newer revisions were stored since"
)

const (
	pollIt  = "poll GET /api/v1/ingest/{ingestionId} until its status is completed or failed"
	retryIt = "POST /api/v1/ingest/{ingestionId}/retry"
)

// What a call is called that made no send. It has no phase.
const (
	callAnswered = "(answered)"
	callRefused  = "(refused)"
)

// nextSteps has a row for each phase and failure code of a send, and for each family of error codes.
var nextSteps = []nextStep{
	{datapoints.PhaseQueued, nil, "Wait: the send is stored and a worker will take it; " + pollIt + "."},
	{datapoints.PhaseProcessing, nil, "Wait: memory is being derived; " + pollIt + "."},
	{datapoints.PhaseCaptured, nil, "Wait: the memories are stored and the search index takes them next; " + pollIt + "."},
	{datapoints.PhaseIndexed, nil, "Nothing: recall finds what was sent."},
	{
		datapoints.PhaseIndexed,
		[]string{whenDeleted},
		"Nothing: what was sent is deleted; to have the text again, send it under a new id.",
	},
	{
		datapoints.PhaseNothingChanged, nil,
		"Nothing: the same was stored before; change content, label, metadata or timestamp to make a new revision.",
	},
	{
		datapoints.PhaseFailed,
		[]string{whenOutdated},
		"Nothing: each data point that failed has a newer revision, which recall finds.",
	},
	{
		datapoints.PhaseFailed,
		[]string{ingestion.ModelUnavailable},
		"Check that the model answers, then retry with " + retryIt + ".",
	},
	{
		datapoints.PhaseFailed,
		[]string{ingestion.ModelResponseUnreadable},
		"Retry with " + retryIt + ", which asks the model again.",
	},
	{
		datapoints.PhaseFailed,
		[]string{ingestion.IndexUnavailable},
		"Wait until /readyz no longer names the search index, then retry with " + retryIt + ".",
	},
	{
		datapoints.PhaseFailed,
		[]string{ingestion.ContentRejected},
		"Change the content and send it under the same id: a retry fails in the same way.",
	},
	{
		datapoints.PhaseFailed,
		[]string{ingestion.Internal},
		"Retry with " + retryIt + "; if it fails again, look for the ingestionId in the log of the service.",
	},
	{callAnswered, nil, "Nothing: the call was answered and sent no data point."},
	{
		callRefused,
		[]string{
			fault.CodeInvalidRequest, fault.CodeInvalidIngestion, fault.CodeInvalidDeletion, fault.CodeTraitsInvalid,
			fault.CodeBulkInvalidRows, fault.CodeAudienceSlugInvalid, fault.CodeAudienceSlugReserved,
			fault.CodeAudienceKindInvalid, fault.CodeAudienceKindMismatch, fault.CodeAudienceRuleInvalid,
			fault.CodeAudienceKindSwitch, fault.CodeRecallQueryRequired, fault.CodeIdentityRequired,
			fault.CodeRecallSortInvalid, fault.CodeRecallRangeInvalid,
			fault.CodeInvalidRange, fault.CodeRangeTooWide, fault.CodeInvalidReveal, fault.CodeProjectNameInvalid,
			fault.CodeKeyNameInvalid, fault.CodeUnsupportedMediaType, fault.CodeMethodNotAllowed,
		},
		"Correct the call as the debugMessage of its answer says, and send it again.",
	},
	{
		callRefused,
		[]string{fault.CodeAudienceUnknown},
		"Create the audience with PUT /api/v1/audiences/{slug}, or name one that exists, and send the call again.",
	},
	{
		callRefused,
		[]string{fault.CodeContentTooLarge},
		"Cut the content, or the batch, to the limitBytes of the answer, and send it in several calls.",
	},
	{
		callRefused,
		[]string{fault.CodeWebhookBodyTooLarge},
		"Let the sender send smaller events: one event has at most the limitBytes of the answer.",
	},
	{
		callRefused,
		[]string{fault.CodeWebhookPaused},
		"Resume the webhook, then let the sender send the event again: events of a pause are not kept.",
	},
	{
		callRefused,
		[]string{fault.CodeIdempotencyConflict},
		"Send this payload under another idempotencyKey: the key belongs to the ingestionId of the answer.",
	},
	{
		callRefused,
		[]string{fault.CodeDataPointDeleted},
		"Send the text under a new id: the id of a deleted data point is not taken again.",
	},
	{
		callRefused,
		[]string{fault.CodeIngestionNotStopped},
		"Wait: only a failed send is retried; " + pollIt + ".",
	},
	{callRefused, []string{fault.CodeConflict}, "Send the same call again: another one changed the same records."},
	{
		callRefused,
		[]string{fault.CodeOutOfCredits},
		"Buy credits, or wait until the balance is filled; GET /api/v1/usage shows it.",
	},
	{
		callRefused,
		[]string{fault.CodeProjectCapReached, fault.CodeSpendCapReached},
		"Raise the cap, or wait for the resetsAt of the answer; GET /api/v1/usage shows what is left.",
	},
	{
		callRefused,
		[]string{
			fault.CodeProjectLimitReached, fault.CodeAudienceLimitReached, fault.CodeWebhooksNotIncluded,
		},
		"Remove what is no longer needed, or change to a plan that includes more.",
	},
	{
		callRefused,
		[]string{fault.CodeProjectRequired, fault.CodeProjectMismatch, fault.CodeProjectNotFound},
		"Name the project of the call, and with a project key no other than its own.",
	},
	{
		callRefused,
		[]string{
			fault.CodeMissingAPIKey, fault.CodeMalformedAPIKey, fault.CodeUnauthorized, fault.CodeInsufficientScope,
		},
		"Use a key that the route accepts.",
	},
	{callRefused, []string{fault.CodeProjectArchived}, "Unarchive the project, or use the key of another one."},
	{callRefused, []string{fault.CodeCORSRefused}, "Call the service from a server: browsers are refused."},
	{
		callRefused,
		[]string{fault.CodeNotFound, fault.CodeDataPointNotFound},
		"Check the id in the path or body: the project has nothing with it, or no longer.",
	},
	{
		callRefused,
		[]string{fault.CodeServiceUnavailable, fault.CodeOrganizationNotReady, fault.CodeTimeout},
		"Send the same call again after its Retry-After; /readyz names what is not ready.",
	},
	{
		callRefused,
		[]string{fault.CodePipelineDisabled},
		"Start the service with ANNALS_PIPELINE=on, then send the call again.",
	},
	{
		callRefused,
		[]string{fault.CodeInternal},
		"Send the call again; if it fails again, look for the requestId in the log of the service.",
	},
}

// findNext returns the sentence of a row, "" if there is none.
func findNext(phase, when string) string {
	for _, row := range nextSteps {
		if row.phase == phase && (when == "" && row.when == nil || slices.Contains(row.when, when)) {
			return row.next
		}
	}
	return ""
}

// nextOfSend returns the next step of a send.
func nextOfSend(s datapoints.Explained) string {
	switch {
	case s.Phase == datapoints.PhaseFailed && !s.FailureOpen:
		return findNext(s.Phase, whenOutdated)
	case s.Failure != nil:
		if next := findNext(s.Phase, s.Failure.Code); next != "" {
			return next
		}
		return findNext(s.Phase, ingestion.Internal) // a code of a newer program
	case s.Phase == datapoints.PhaseIndexed && s.Deleted:
		return findNext(s.Phase, whenDeleted)
	default:
		return findNext(s.Phase, "")
	}
}

// nextOfCall returns the next step of a call that made no send.
func nextOfCall(status int, code string) string {
	if status < http.StatusBadRequest {
		return findNext(callAnswered, "")
	}
	if next := findNext(callRefused, code); next != "" {
		return next
	}
	if status < http.StatusInternalServerError { // a code of a newer program
		return findNext(callRefused, fault.CodeInvalidRequest)
	}
	return findNext(callRefused, fault.CodeInternal)
}

// Kind is what an id names.
type Kind string

// The kinds. A data point, identity, audience and webhook is named by the id that clients use, the others by a UUID.
const (
	FoundDataPoint Kind = "data point"
	FoundSend      Kind = "send"
	FoundRequest   Kind = "request"
	FoundSource    Kind = "source"
	FoundMemory    Kind = "memory"
	FoundDeletion  Kind = "deletion"
	FoundIdentity  Kind = "identity"
	FoundAudience  Kind = "audience"
	FoundWebhook   Kind = "webhook"
)

// Found is something that an id names, by the id under which its page shows it.
type Found struct {
	Kind Kind   `json:"kind"`
	ID   string `json:"id"`
}

// Finder finds ids.
type Finder struct {
	DB   *pgxpool.Pool
	Head projections.Head
	// Calls is nil without a request log.
	Calls loggedCalls
}

// Each part reads one row by a key, except the audiences of a project, which are few.
const selectFound = `
	select 'data point', source_id from datapoints.data_points where id in ($3, $4) and project_id = $1
	union all select 'data point', $2 from trace.deleted where data_point = $3 and project_id = $1
	union all select 'send', id::text from datapoints.sends where id = $4 and project_id = $1
	union all (select 'send', id::text from datapoints.sends where request_id = $4 and project_id = $1 limit 1)
	union all select 'source', node_id::text from trace.revisions where node_id = $4 and project_id = $1
	union all select 'memory', m.id::text from trace.memories m join trace.revisions r using (node_id)
		where m.id = $4 and r.project_id = $1
	union all (select 'memory', $4::text from trace.revisions where node_id between $6 and $7 and project_id = $1 limit 1)
	union all select 'deletion', id::text from datapoints.deletions where id = $4 and project_id = $1
	union all select 'identity', identity from directory.identities
		where id = $5 and project_id = $1 and identity is not null
	union all select 'audience', slug from directory.audiences where project_id = $1 and slug = $2
	union all select 'webhook', id from access.webhooks where id = $2 and project_id = $1`

// Find returns everything that an id of a project names: a source id, identity, slug, webhook or event of one, or the
// UUID of a data point, send, request, memory, node of the trace or deletion. Nothing is found in other projects.
func (q Finder) Find(ctx context.Context, project auth.Project, id string) (list []Found, err error) {
	if id == "" || strings.Contains(id, "\x00") {
		return nil, nil
	}
	parsed, err := uuid.Parse(id)
	if err != nil {
		parsed = uuid.Nil
		if request, ok := httpx.RequestOfEvent(id); ok {
			parsed = request
		}
	}
	_, err = again(ctx, q.Head, func() (found bool, err error) {
		list, err = q.inTables(ctx, project, id, parsed)
		return len(list) > 0, err
	}, projection.Access, projection.DataPoints, projection.Directory, projection.Trace)
	if err != nil {
		return nil, err
	}
	if parsed == uuid.Nil || q.Calls == nil {
		return list, nil
	}
	_, err = q.Calls.Get(ctx, project.ID, parsed)
	if isNotFound(err) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	return append(list, Found{FoundRequest, parsed.String()}), nil
}

func (q Finder) inTables(ctx context.Context, project auth.Project, id string, parsed uuid.UUID) ([]Found, error) {
	low, high, passage := datapoint.NodesOfPassage(parsed)
	if !passage {
		low, high = uuid.Max, uuid.Nil
	}
	rows, err := q.DB.Query(ctx, selectFound, project.ID, id, stream.DataPointID(project.Namespace, id), parsed,
		stream.IdentityID(project.Namespace, id), low, high)
	if err != nil {
		return nil, fmt.Errorf("find an id: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Found])
	if err != nil {
		return nil, fmt.Errorf("find an id: %w", err)
	}
	return list, nil
}
