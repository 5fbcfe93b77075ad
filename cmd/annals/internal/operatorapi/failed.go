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
	"github.com/annals-project/annals/projections/datapoints"
)

// The operations on sends that stopped. Retry queues a stopped send again; ErrNotFound,
// ErrNotStopped and ErrDisabled are its refusals.
var (
	ListFailed = Operation[FailedRequest, datapoints.StoppedList]{http.MethodGet, "/operator/failed"}
	Retry      = Operation[RetryRequest, None]{http.MethodPost, "/operator/failed/{id}/retry"}
)

// FailedRequest lists at most Limit stopped sends, oldest first, after the send After. Limit 0 is
// datapoints.MaxStopped; After "" begins with the oldest.
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
	f.Limit, f.After = datapoints.MaxStopped, q.Get("after")
	if text := q.Get("limit"); text != "" {
		if f.Limit, err = strconv.Atoi(text); err != nil || f.Limit < 1 || f.Limit > datapoints.MaxStopped {
			return errors.New("limit is not within 1 and " + strconv.Itoa(datapoints.MaxStopped))
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

// Sends are the stopped sends of the service.
type Sends interface {
	// List lists stopped sends, as datapoints.StoppedSends does.
	List(ctx context.Context, project uuid.UUID, limit int, after uuid.UUID) (datapoints.StoppedList, error)
}

// Retrier queues a stopped send again, as commands.Service does.
type Retrier interface {
	RetryOf(ctx context.Context, call commands.Call, id uuid.UUID) error
}

// SendRoutes returns the routes of the operations on stopped sends.
func SendRoutes(list Sends, do Retrier, now func() time.Time) []Route {
	return []Route{
		ListFailed.Serve(func(ctx context.Context, in FailedRequest) (datapoints.StoppedList, error) {
			return list.List(ctx, uuid.Nil, in.Limit, in.after)
		}),
		Retry.Serve(func(ctx context.Context, in RetryRequest) (None, error) {
			return None{}, retryRefusal(do.RetryOf(ctx, CallBy(in.By, now()), in.ID))
		}),
	}
}

// retryRefusal returns the refusal for a fault of a retry, and another error as it is.
func retryRefusal(err error) error {
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
