//go:build wip

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/operator"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/readapi"
)

// blobReader reads blobs for the projections.
type blobReader struct {
	store eventstore.Store
	codec *eventstore.Codec
}

func (b blobReader) ReadBlob(ctx context.Context, ref blob.Ref) ([]byte, error) {
	return eventstore.ReadBlob(ctx, b.store, b.codec, ref)
}

// revisionReader reads the event that holds a revision's body.
type revisionReader struct{ log *commands.Log }

func (r revisionReader) Revision(ctx context.Context, dataPoint uuid.UUID, at int64) (*datapoint.RevisionAccepted, error) {
	f, ok, err := r.log.At(ctx, stream.Name(stream.DataPoint, dataPoint), eventstore.Revision(at))
	if err != nil {
		return nil, err
	}
	e, is := f.Event.(*datapoint.RevisionAccepted)
	if !ok || !is {
		return nil, fmt.Errorf("data point %s has no body at %d", dataPoint, at)
	}
	return e, nil
}

// liveKeys looks keys up, and refuses to answer while the projection that it rests on is stopped: a key could have been revoked.
type liveKeys struct {
	access.Queries
	waiter *projections.Waiter
}

func (k liveKeys) KeyByHash(ctx context.Context, kind auth.Kind, hash [32]byte) (auth.Principal, bool, bool, error) {
	if err := k.waiter.Stopped(ctx, access.Name); err != nil {
		return auth.Principal{}, false, false, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "keys cannot be checked; /readyz says why")
	}
	return k.Queries.KeyByHash(ctx, kind, hash)
}

// sendStatuses answers the polls of sends.
type sendStatuses struct{ queries datapoints.Queries }

func (s sendStatuses) Status(ctx context.Context, project auth.Project, id uuid.UUID) (readapi.Status, error) {
	found, err := s.queries.Status(ctx, project, id)
	if err != nil {
		return readapi.Status{}, err
	}
	status := readapi.Status{
		Status: found.Status, Settled: found.Settled, Blocked: found.Blocked, Readiness: readapi.Readiness(found.Readiness),
	}
	if found.Failure != nil {
		status.Failure = &readapi.Failure{Code: found.Failure.Code, Message: found.Failure.Message}
	}
	return status, nil
}

// stoppedSends is what an operator asks about sends that stopped.
type stoppedSends struct {
	queries  datapoints.Queries
	commands *commands.Service
}

func (s stoppedSends) Retry(ctx context.Context, id uuid.UUID) error {
	project, found, err := s.queries.ProjectOf(ctx, id)
	if err != nil {
		return err
	}
	if !found {
		return operator.ErrNotFound
	}
	call := commands.Call{Principal: auth.Principal{Kind: "operator", Project: auth.Project{ID: project}}, RequestID: uuid.Must(uuid.NewV7()), ReceivedAt: now()}
	err = s.commands.Retry(ctx, call, id)
	var f *fault.Error
	if errors.As(err, &f) {
		switch f.Code {
		case fault.CodeNotFound:
			return operator.ErrNotFound
		case fault.CodeIngestionNotStopped, fault.CodeDataPointDeleted:
			return operator.ErrNotStopped
		case fault.CodePipelineDisabled:
			return operator.ErrDisabled
		}
	}
	return err
}

// serveOperator serves the operator's socket until the context ends.
func serveOperator(l net.Listener, handler http.Handler) func(context.Context) error {
	return func(ctx context.Context) error {
		server := &http.Server{Handler: handler, ReadHeaderTimeout: drainPatience}
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
		}
		err := server.Close()
		<-served // http.ErrServerClosed
		return err
	}
}
