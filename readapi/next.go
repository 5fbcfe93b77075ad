package readapi

import (
	"slices"

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

// nextSteps has a row for each phase and failure code of a send.
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
	case s.Phase == datapoints.PhaseFailed && !s.FailureStands:
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
