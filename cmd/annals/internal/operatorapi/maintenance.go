package operatorapi

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/tokens"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/runner"
)

// The operations on erasure and backup. They return when they are done. EraseNow erases what can be
// erased now; the rest is in Left.
var (
	PendingErasures = Operation[None, work.Open]{http.MethodGet, "/operator/erase"}
	EraseNow        = Operation[None, erasure.Report]{http.MethodPost, "/operator/erase"}
	MakeBackup      = Operation[BackupRequest, Backup]{http.MethodPost, "/operator/backup"}
)

// EraseRoutes returns the routes of erasure by a finisher.
func EraseRoutes(f *pipeline.Finisher) []Route {
	return []Route{
		PendingErasures.Serve(func(ctx context.Context, _ None) (work.Open, error) { return f.Pending(ctx) }),
		EraseNow.Serve(func(ctx context.Context, _ None) (erasure.Report, error) {
			done, err := f.EraseNow(ctx)
			if denied := erasure.Denied(err); denied != nil {
				err = Refuse("%v; give the user of ANNALS_EVENTSTORE that right, then erase again (docs/stores.md)", denied)
			}
			return done, err
		}),
	}
}

// BackupRequest names the folder of a backup: an absolute path of a folder that is empty or missing,
// and that the server may write.
type BackupRequest struct {
	Dir string `json:"dir"`
}

// Backup is a completed backup.
type Backup struct {
	Dir string `json:"dir"`
	// Position is the position of its newest event.
	Position uint64 `json:"position"`
}

// BackupRoute returns the route of backups of a data folder.
func BackupRoute(from datafolder.Backup) Route {
	return MakeBackup.Serve(func(ctx context.Context, in BackupRequest) (Backup, error) {
		if !filepath.IsAbs(in.Dir) {
			return Backup{}, &refusedError{errInvalid, "dir is not an absolute path"}
		}
		position, err := from.Make(ctx, in.Dir)
		if refused, is := errors.AsType[*datafolder.RefusedError](err); is {
			err = Refuse("%s", refused.Error())
		}
		return Backup{in.Dir, position}, err
	})
}

// The operations on projections. ListProjections returns the names in the order in which all of them
// are rebuilt. SetAside lets projections ignore an event; ErrRefused is its refusal. ListSetAside
// returns such events by position. A rebuild ends if the caller goes away; a later one continues it.
var (
	ListProjections = Operation[None, []string]{http.MethodGet, "/operator/projections"}
	SetAside        = Operation[SetAsideRequest, registry.EventSetAside]{http.MethodPost, "/operator/set-aside"}
	ListSetAside    = Operation[None, []registry.EventSetAside]{http.MethodGet, "/operator/set-aside"}
	rebuild         = Stream[rebuildRequest, runner.RebuildProgress]{"/operator/projections/rebuild"}
)

// SetAsideRequest sets an event aside. By is a remark of the operator.
type SetAsideRequest struct {
	tenancy.SetAside
	By string `json:"by"`
}

type rebuildRequest struct {
	Projection string `json:"projection"`
	runner.RebuildOptions
}

// ProjectionRoutes returns the routes of the operations on the projections of a process.
func ProjectionRoutes(runtime *runner.Runtime, asides tenancy.EventAsides, now func() time.Time) []Route {
	return []Route{
		ListProjections.Serve(func(context.Context, None) ([]string, error) { return runtime.Names(), nil }),
		SetAside.ServeAs(now, func(
			ctx context.Context, call engine.Call, in SetAsideRequest,
		) (registry.EventSetAside, error) {
			return asides.SetAside(ctx, call, in.SetAside)
		}),
		ListSetAside.Serve(func(ctx context.Context, _ None) ([]registry.EventSetAside, error) {
			return runtime.ListSetAside(ctx)
		}),
		rebuild.Serve(func(
			ctx context.Context, in rebuildRequest, _ func(), emit func(runner.RebuildProgress) error,
		) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			return runtime.RebuildWith(ctx, in.Projection, in.RebuildOptions, func(p runner.RebuildProgress) {
				if err := emit(p); err != nil {
					cancel(err) // the caller has gone away
				}
			})
		}),
	}
}

// Projections returns the projections of a running server.
func (c *Client) Projections(ctx context.Context) ([]string, error) {
	return ListProjections.Call(ctx, c, None{})
}

// RebuildAll rebuilds projections of a running server one after the other: the server needs the other
// processors for its calls.
func (c *Client) RebuildAll(
	ctx context.Context, names []string, options runner.RebuildOptions, report func(runner.RebuildProgress),
) error {
	for _, name := range names {
		if err := c.Rebuild(ctx, name, options, report); err != nil {
			return err
		}
	}
	return nil
}

// Rebuild rebuilds a projection of a running server and calls report with the progress. The server
// ends the rebuild with the context.
func (c *Client) Rebuild(
	ctx context.Context, projection string, options runner.RebuildOptions, report func(runner.RebuildProgress),
) error {
	done := false
	err := rebuild.Call(ctx, c, rebuildRequest{projection, options}, func() {}, func(p runner.RebuildProgress) error {
		done = p.Done
		report(p)
		return nil
	})
	if err == nil && !done {
		err = errors.New("the server stopped before the rebuild was done")
	}
	return err
}

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
	RetryOf(ctx context.Context, call engine.Call, id uuid.UUID) error
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

// ListDamaged returns the streams that somebody else ended or hid in the event store, by position.
var ListDamaged = Stream[None, datapoints.DamagedStream]{"/operator/damaged"}

// DamagedStreams passes on damaged streams, as datapoints.Queries does.
type DamagedStreams interface {
	EachDamaged(ctx context.Context, emit func(datapoints.DamagedStream) error) error
}

// DamageRoutes returns the route that lists damaged streams.
func DamageRoutes(list DamagedStreams) []Route {
	return []Route{ListDamaged.Serve(
		func(ctx context.Context, _ None, _ func(), emit func(datapoints.DamagedStream) error) error {
			return list.EachDamaged(ctx, emit)
		})}
}

// EmbeddingProgress returns how far the vectors of semantic search are made, the zero value without a model.
var EmbeddingProgress = Operation[None, embeddings.Progress]{http.MethodGet, "/operator/embeddings"}

// EmbeddingRoute returns the route of EmbeddingProgress, for the name of the model that embeds, "" for none.
func EmbeddingRoute(queries embeddings.Queries, model string) Route {
	return EmbeddingProgress.Serve(func(ctx context.Context, _ None) (embeddings.Progress, error) {
		return queries.Progress(ctx, model)
	})
}

// ServiceStatus returns how the service is that runs on a data folder.
var ServiceStatus = Operation[None, Status]{http.MethodGet, "/operator/status"}

// Status is how a service is, as its operator sees it.
type Status struct {
	PID int `json:"pid"`
	// DataDir is the absolute path of the data folder.
	DataDir string `json:"dataDir"`
	// API, Console, MCP and Health are addresses. Those that this process does not serve are "".
	API     string `json:"api"`
	Console string `json:"console,omitempty"`
	MCP     string `json:"mcp,omitempty"`
	Health  string `json:"health"`
	// FailedSends are those that failed in the last hour.
	FailedSends int `json:"failedSends"`
	// Projections are how far each is.
	Projections []condition.Projection `json:"projections"`
	// Settings are those that differ from the defaults, by their variables. Secrets are masked.
	Settings map[string]string `json:"settings"`
	condition.Details
	// NotReady are the parts that are not ready, with their causes.
	NotReady []client.NotReady `json:"notReady"`
	Remarks  client.Remarks    `json:"remarks"`
}

// StatusRoute returns the route of the state of a service.
func StatusRoute(read func(context.Context) Status) Route {
	return ServiceStatus.Serve(func(ctx context.Context, _ None) (Status, error) { return read(ctx), nil })
}

// RotateSigningKeys makes a key that signs tokens, and answers those that are left, the newest first.
var RotateSigningKeys = Operation[None, []tokens.Key]{http.MethodPost, "/operator/signing-keys/rotate"}
