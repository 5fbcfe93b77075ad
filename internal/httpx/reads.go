package httpx

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/readlog"
)

// Reads records what calls are shown.
type Reads interface {
	// Open makes the read of a request at a time, zero for now; nil if the reads of the project of the caller are not
	// recorded. The error is service-unavailable while records cannot be stored.
	Open(ctx context.Context, p auth.Principal, request uuid.UUID, at time.Time) (*readlog.Read, error)
}

// recorded serves a call, and records what it shows if its project wants that. A read of the caller of a call in the
// process is that of the call too.
func (e edge) recorded(c echo.Context, r *request, next echo.HandlerFunc) (err error) {
	if e.cfg.Reads == nil || r.principal.Project.Reads == "" || r.route.Writes() {
		return next(c)
	}
	ctx := c.Request().Context()
	if read := readlog.From(ctx); read != nil {
		read.Within(r.id)
		return next(c)
	}
	read, err := e.cfg.Reads.Open(ctx, r.principal, r.id, r.receivedAt)
	if err != nil {
		return err
	}
	answered := false
	defer func() { read.End(answered || c.Response().Committed) }() // also of an answer that breaks off
	c.SetRequest(c.Request().WithContext(readlog.NewContext(ctx, read)))
	if err = next(c); err == nil {
		err = store(c) // what a call in the process took without an answer
	}
	answered = err == nil
	return err
}

// store returns once what an answer shows so far is in the log, if the reads of the project are proved. All that
// writes JSON calls it first.
func store(c echo.Context) error {
	ctx := c.Request().Context()
	return readlog.From(ctx).Store(ctx)
}
