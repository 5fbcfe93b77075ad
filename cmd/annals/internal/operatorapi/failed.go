package operatorapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/projections/datapoints"
)

// The operations on sends that stopped. ListFailed returns those of every project, oldest first. Retry queues a stopped
// send again; ErrNotFound, ErrNotStopped and ErrDisabled are its refusals.
var (
	ListFailed = Stream[None, datapoints.StoppedSend]{"/operator/failed"}
	Retry      = Operation[RetryRequest, None]{http.MethodPost, "/operator/failed/retry"}
)

// RetryRequest names the send to retry.
type RetryRequest struct {
	ID uuid.UUID `json:"id"`
}

// Sends are the stopped sends of the service.
type Sends interface {
	// Each passes on stopped sends, as datapoints.StoppedSends does.
	Each(ctx context.Context, project uuid.UUID, emit func(datapoints.StoppedSend) error) error
}

// Retrier queues a stopped send again, as commands.Service does.
type Retrier interface {
	RetryOf(ctx context.Context, call commands.Call, id uuid.UUID) error
}

// SendRoutes returns the routes of the operations on stopped sends.
func SendRoutes(list Sends, do Retrier, now func() time.Time) []Route {
	return []Route{
		ListFailed.Serve(func(ctx context.Context, _ None, _ func(), emit func(datapoints.StoppedSend) error) error {
			return list.Each(ctx, uuid.Nil, emit)
		}),
		Retry.ServeAs(now, func(ctx context.Context, call caller, in RetryRequest) (None, error) {
			return None{}, retryRefusal(do.RetryOf(ctx, call, in.ID))
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
