package operatorapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
)

// The operations on sends that stopped. Retry queues a stopped send again; ErrNotFound,
// ErrNotStopped and ErrDisabled are its refusals.
var (
	ListFailed = Operation[FailedRequest, FailedList]{http.MethodGet, "/operator/failed"}
	Retry      = Operation[RetryRequest, None]{http.MethodPost, "/operator/failed/{id}/retry"}
)

// MaxPage is the most sends of one list.
const MaxPage = 500

// FailedRequest lists at most Limit stopped sends, oldest first, after the send After. Limit 0 is
// MaxPage; After "" begins with the oldest.
type FailedRequest struct {
	Limit int
	After string

	after uuid.UUID
}

func (f FailedRequest) url(path string) string {
	q := url.Values{"limit": {strconv.Itoa(f.Limit)}}
	if f.After != "" {
		q.Set("after", f.After)
	}
	return path + "?" + q.Encode()
}

func (f *FailedRequest) read(r *http.Request) (err error) {
	q := r.URL.Query()
	f.Limit, f.After = MaxPage, q.Get("after")
	if text := q.Get("limit"); text != "" {
		if f.Limit, err = strconv.Atoi(text); err != nil || f.Limit < 1 || f.Limit > MaxPage {
			return errors.New("limit is not within 1 and " + strconv.Itoa(MaxPage))
		}
	}
	if f.After != "" {
		if f.after, err = uuid.Parse(f.After); err != nil {
			return errors.New("after is not the id of a send")
		}
	}
	return nil
}

// RetryRequest names the send to retry. By is the operator, as the socket knows the peer.
type RetryRequest struct {
	ID uuid.UUID
	By string
}

func (q RetryRequest) url(path string) string { return strings.Replace(path, "{id}", q.ID.String(), 1) }

func (q *RetryRequest) read(r *http.Request) (err error) {
	if q.ID, err = uuid.Parse(r.PathValue("id")); err != nil {
		return errors.New("the id is not the id of a send")
	}
	return nil
}

// Failed is a send that stopped.
type Failed struct {
	IngestionID uuid.UUID `json:"ingestionId"`
	Project     string    `json:"project"`
	// Code and Message are the failure of the send as its status shows them.
	Code       string    `json:"code"`
	Message    string    `json:"message"`
	Items      int       `json:"items"`
	AcceptedAt time.Time `json:"acceptedAt"`
	FailedAt   time.Time `json:"failedAt"`
	// Retryable is false if a retry would stop the same way.
	Retryable bool `json:"retryable"`
}

// FailedList is one page of stopped sends, oldest first.
type FailedList struct {
	Failed []Failed `json:"failed"`
	// After requests the next page; "" on the last one.
	After string `json:"after,omitempty"`
}

// Sends are the stopped sends of the service.
type Sends interface {
	// FailedSends lists at most limit stopped sends, oldest first, after the send named by after;
	// uuid.Nil begins with the oldest.
	FailedSends(ctx context.Context, limit int, after uuid.UUID) ([]Failed, error)
	// Retry queues a stopped send again. Its event names by.
	Retry(ctx context.Context, ingestionID uuid.UUID, by string) error
}

// SendRoutes returns the routes of the operations on stopped sends.
func SendRoutes(s Sends) []Route {
	return []Route{
		ListFailed.Serve(func(ctx context.Context, in FailedRequest) (FailedList, error) {
			list, err := s.FailedSends(ctx, in.Limit, in.after)
			out := FailedList{Failed: append([]Failed{}, list...)}
			if len(list) > 0 && len(list) == in.Limit {
				out.After = list[len(list)-1].IngestionID.String()
			}
			return out, err
		}),
		Retry.Serve(func(ctx context.Context, in RetryRequest) (None, error) {
			return None{}, s.Retry(ctx, in.ID, in.By)
		}),
	}
}

// ServiceSends are Sends of a service.
type ServiceSends struct {
	Queries  datapoints.Queries
	Access   access.Queries
	Commands *commands.Service
	Now      func() time.Time
}

// FailedSends implements Sends.
func (s ServiceSends) FailedSends(ctx context.Context, limit int, after uuid.UUID) ([]Failed, error) {
	found, err := s.Queries.FailedSends(ctx, uuid.Nil, limit, after)
	if err != nil {
		return nil, err
	}
	list := make([]Failed, len(found))
	for i, f := range found {
		project, _, err := s.Access.ProjectByID(ctx, f.ProjectID)
		if err != nil {
			return nil, err
		}
		list[i] = Failed{
			IngestionID: f.IngestionID, Project: project.Slug, Code: f.Failure.Code, Message: f.Failure.Message,
			Items: f.Items, AcceptedAt: f.AcceptedAt, FailedAt: f.FailedAt,
			Retryable: f.Failure.Code != ingestion.ContentRejected,
		}
	}
	return list, nil
}

// Retry implements Sends.
func (s ServiceSends) Retry(ctx context.Context, id uuid.UUID, by string) error {
	project, found, err := s.Queries.ProjectOf(ctx, id)
	if err != nil {
		return err
	}
	if !found {
		return ErrNotFound
	}
	call := CallBy(by, s.Now())
	call.Principal.Project = auth.Project{ID: project}
	err = s.Commands.Retry(ctx, call, id)
	if f, is := errors.AsType[*fault.Error](err); is {
		switch f.Code {
		case fault.CodeNotFound:
			return ErrNotFound
		case fault.CodeIngestionNotStopped, fault.CodeDataPointDeleted:
			return ErrNotStopped
		case fault.CodePipelineDisabled:
			return ErrDisabled
		}
	}
	return err
}
