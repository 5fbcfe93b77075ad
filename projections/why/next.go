package why

import (
	"net/http"
	"slices"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/projections/datapoints"
)

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
