package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The states of SQL that a start meets.
const (
	invalidCatalogName = "3D000"
	duplicateDatabase  = "42P04"
)

// awaitReady returns when the server answers on the database, which it creates where it is not there yet.
func (s *Server) awaitReady(ctx context.Context) error {
	for wait := newBackoff(2*time.Millisecond, 100*time.Millisecond); ; {
		err := execute(ctx, s.URL(), "select 1")
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == invalidCatalogName {
			err = createDatabase(ctx, socketURL(s.socket.path, "postgres"))
		}
		if err == nil {
			return nil
		}
		select {
		case <-s.process.done:
			return fmt.Errorf("it ended: %w: %s", s.process.err, s.process.said)
		default:
		}
		if !wait.sleep(ctx) {
			return fmt.Errorf("it takes no connections: %w: %w", context.Cause(ctx), err)
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

// execute runs one statement on a connection of its own.
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

// backoff is a wait between tries of one condition that grows up to a limit.
type backoff struct{ next, most time.Duration }

func newBackoff(first, most time.Duration) *backoff { return &backoff{next: first, most: most} }

// sleep waits, and says whether the context still runs.
func (b *backoff) sleep(ctx context.Context) bool {
	timer := time.NewTimer(b.next)
	defer timer.Stop()
	b.next = min(b.next*3/2, b.most)
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
