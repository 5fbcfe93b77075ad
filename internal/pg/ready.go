package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/eventstore/backoff"
)

// The SQL states that a start handles.
const (
	invalidCatalogName = "3D000"
	duplicateDatabase  = "42P04"
)

// awaitReady returns when the server accepts connections to the database. It creates the database if
// it does not exist.
func (s *Server) awaitReady(ctx context.Context, p *process) error {
	for wait := (backoff.Backoff{First: 2 * time.Millisecond, Longest: 100 * time.Millisecond}); ; {
		err := execute(ctx, s.URL(), "select 1")
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == invalidCatalogName {
			err = createDatabase(ctx, socketURL(s.socket.path, "postgres"))
		}
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("postgres ended: %w: %s", p.err, p.output)
		default:
		}
		if wait.Wait(ctx) != nil {
			return fmt.Errorf("postgres accepts no connections: %w: %w", context.Cause(ctx), err)
		}
	}
}

func createDatabase(ctx context.Context, url string) error {
	err := execute(ctx, url, "create database "+database)
	if exists, ok := errors.AsType[*pgconn.PgError](err); ok && exists.Code == duplicateDatabase {
		return nil
	}
	return err
}

// execute runs one statement on a new connection.
func execute(ctx context.Context, url, statement string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, statement)
	return err
}
