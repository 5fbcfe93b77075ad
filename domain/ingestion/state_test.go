package ingestion_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
)

var (
	project  = uuid.MustParse("6f1f1b1e-0000-4000-8000-000000000001")
	request  = uuid.MustParse("6f1f1b1e-0000-4000-8000-000000000002")
	at       = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	outcomes = []ingestion.Outcome{{Outcome: ingestion.Created, Revision: 1}}

	claimed   = &ingestion.Claimed{ProjectID: project, Fingerprint: "abc"}
	accepted  = &ingestion.Accepted{ProjectID: project, Fingerprint: "def", Items: make([]ingestion.Item, 1)}
	fannedOut = &ingestion.FannedOut{ProjectID: project, Outcomes: outcomes}
	indexed   = &ingestion.Indexed{ProjectID: project}
	failed    = &ingestion.Failed{ProjectID: project, Code: ingestion.IndexUnavailable}
	abandoned = &ingestion.Failed{
		ProjectID: project, Code: ingestion.Internal, Message: "the stored text cannot be read", FailedAt: at,
	}
	retried = &ingestion.Retried{ProjectID: project, Round: 1, RequestID: request, RetriedAt: at}
)

func given(events ...event.Event) *ingestion.State {
	s := &ingestion.State{}
	for _, e := range events {
		s.Evolve(e)
	}
	return s
}

func TestState_Evolve(t *testing.T) {
	for name, tt := range map[string]struct {
		given                       []event.Event
		pending, abandoned, stopped bool
		round                       int
		outcomes                    []ingestion.Outcome
	}{
		"no events":                     {},
		"claim of a single send":        {given: []event.Event{claimed}},
		"single send that failed":       {given: []event.Event{claimed, failed}, stopped: true},
		"keyless single send, failed":   {given: []event.Event{failed}, stopped: true},
		"single send, retried":          {given: []event.Event{failed, retried}, round: 1},
		"single send, failed again":     {given: []event.Event{failed, retried, failed}, stopped: true, round: 1},
		"committed batch":               {given: []event.Event{accepted}, pending: true},
		"batch with a complete fan-out": {given: []event.Event{accepted, fannedOut}, outcomes: outcomes},
		"batch that is searchable":      {given: []event.Event{accepted, fannedOut, indexed}, outcomes: outcomes},
		"batch that failed":             {given: []event.Event{accepted, fannedOut, failed}, stopped: true, outcomes: outcomes},
		"abandoned batch":               {given: []event.Event{accepted, failed}, pending: true, abandoned: true, stopped: true},
		"abandoned batch, retried":      {given: []event.Event{accepted, failed, retried}, pending: true, round: 1},
		"fan-out after it was abandoned": {
			given: []event.Event{accepted, failed, fannedOut}, stopped: true, outcomes: outcomes,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := given(tt.given...)
			if s.Events != int64(len(tt.given)) || s.Stopped != tt.stopped || s.Round != tt.round {
				t.Errorf("state %+v", s)
			}
			if s.PendingFanOut() != tt.pending || s.Abandoned() != tt.abandoned {
				t.Errorf("pending %v, abandoned %v", s.PendingFanOut(), s.Abandoned())
			}
			if diff := cmp.Diff(tt.outcomes, s.Outcomes); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestState_Matches(t *testing.T) {
	for name, tt := range map[string]struct {
		given       []event.Event
		fingerprint string
		want        bool
	}{
		"no events":                  {nil, "", false},
		"single send, same payload":  {[]event.Event{claimed}, "abc", true},
		"single send, other payload": {[]event.Event{claimed}, "def", false},
		"batch, same payload":        {[]event.Event{accepted, fannedOut}, "def", true},
		"batch, other payload":       {[]event.Event{accepted}, "abc", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := given(tt.given...).Matches(tt.fingerprint); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestState_Decide(t *testing.T) {
	fanOut := func(s *ingestion.State) ([]event.Event, error) { return s.CompleteFanOut(outcomes), nil }
	abandon := func(s *ingestion.State) ([]event.Event, error) { return s.Abandon(at), nil }
	retry := func(c ingestion.Retry) func(*ingestion.State) ([]event.Event, error) {
		c.ProjectID, c.RequestID, c.At = project, request, at
		return func(s *ingestion.State) ([]event.Event, error) { return s.Retry(c) }
	}
	for name, tt := range map[string]struct {
		given []event.Event
		when  func(*ingestion.State) ([]event.Event, error)
		then  []event.Event
		fault string
	}{
		"fan-out of a committed batch":     {given: []event.Event{accepted}, when: fanOut, then: []event.Event{fannedOut}},
		"fan-out that another run stored":  {given: []event.Event{accepted, fannedOut}, when: fanOut},
		"fan-out of an abandoned batch":    {given: []event.Event{accepted, failed}, when: fanOut, then: []event.Event{fannedOut}},
		"abandon a committed batch":        {given: []event.Event{accepted}, when: abandon, then: []event.Event{abandoned}},
		"abandon it after a retry":         {given: []event.Event{accepted, failed, retried}, when: abandon, then: []event.Event{abandoned}},
		"abandon an abandoned batch":       {given: []event.Event{accepted, failed}, when: abandon},
		"abandon a batch after a fan-out":  {given: []event.Event{accepted, fannedOut}, when: abandon},
		"abandon a single send":            {given: []event.Event{claimed}, when: abandon},
		"retry a stopped send":             {given: []event.Event{failed}, when: retry(ingestion.Retry{}), then: []event.Event{retried}},
		"retry a send that runs":           {given: []event.Event{claimed}, when: retry(ingestion.Retry{}), fault: fault.CodeIngestionNotStopped},
		"retry twice":                      {given: []event.Event{failed, retried}, when: retry(ingestion.Retry{}), fault: fault.CodeIngestionNotStopped},
		"retry a send shown as completed":  {given: []event.Event{failed}, when: retry(ingestion.Retry{Completed: true}), fault: fault.CodeIngestionNotStopped},
		"retry after all were deleted":     {given: []event.Event{failed}, when: retry(ingestion.Retry{AllDeleted: true}), fault: fault.CodeDataPointDeleted},
		"retry an abandoned batch":         {given: []event.Event{accepted, failed}, when: retry(ingestion.Retry{AllDeleted: true}), then: []event.Event{retried}},
		"retry a running, deleted send":    {given: []event.Event{accepted, fannedOut}, when: retry(ingestion.Retry{AllDeleted: true}), fault: fault.CodeDataPointDeleted},
		"retry a batch before its fan-out": {given: []event.Event{accepted}, when: retry(ingestion.Retry{AllDeleted: true}), fault: fault.CodeIngestionNotStopped},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tt.when(given(tt.given...))
			var refused *fault.Error
			if errors.As(err, &refused) != (tt.fault != "") || (refused != nil && refused.Code != tt.fault) {
				t.Fatalf("fault %v, want %q", err, tt.fault)
			}
			if diff := cmp.Diff(tt.then, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
