package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/operator"
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

// operatorSends is what an operator asks about sends that stopped.
type operatorSends struct {
	queries  datapoints.Queries
	access   access.Queries
	commands *commands.Service
	now      func() time.Time
}

func (s operatorSends) FailedSends(ctx context.Context, limit int, after uuid.UUID) ([]operator.Failed, error) {
	found, err := s.queries.FailedSends(ctx, uuid.Nil, limit, after)
	if err != nil {
		return nil, err
	}
	list := make([]operator.Failed, len(found))
	for i, f := range found {
		project, _, err := s.access.ProjectByID(ctx, f.ProjectID)
		if err != nil {
			return nil, err
		}
		list[i] = operator.Failed{
			IngestionID: f.IngestionID, Project: project.Slug, Code: f.Failure.Code, Message: f.Failure.Message, Items: f.Items,
			AcceptedAt: f.AcceptedAt, FailedAt: f.FailedAt, Retryable: f.Failure.Code != ingestion.ContentRejected,
		}
	}
	return list, nil
}

func (s operatorSends) Retry(ctx context.Context, id uuid.UUID) error {
	project, found, err := s.queries.ProjectOf(ctx, id)
	if err != nil {
		return err
	}
	if !found {
		return operator.ErrNotFound
	}
	call := commands.Call{Principal: auth.Principal{Kind: "operator", Project: auth.Project{ID: project}}, RequestID: uuid.Must(uuid.NewV7()), ReceivedAt: s.now()}
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
		server := operator.Server(handler)
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
