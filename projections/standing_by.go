package projections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Turn is who works on a projection, as the database knows it.
type Turn struct {
	// Holder is "" where nobody ever had it. Epoch is raised with each turn.
	Holder string
	Epoch  int64
	// Until is when another process may take over; it moves on while the holder lives.
	Until time.Time
}

// TurnOf reads who has, or had last, the turn of a projection.
func (rt *Runtime) TurnOf(ctx context.Context, projection string) (t Turn, err error) {
	var made bool
	schema := pgx.Identifier{projection}.Sanitize()
	if err := rt.db.QueryRow(ctx, `select to_regclass($1) is not null`, schema+".checkpoint").Scan(&made); err != nil || !made {
		return t, wrapTurn(err)
	}
	rows, err := rt.db.Query(ctx, `select holder, epoch, until from `+schema+`.checkpoint`)
	if err != nil {
		return t, wrapTurn(err)
	}
	_, err = pgx.ForEachRow(rows, []any{&t.Holder, &t.Epoch, &t.Until}, func() error { return nil })
	return t, wrapTurn(err)
}

func wrapTurn(err error) error {
	if err != nil {
		return fmt.Errorf("whose turn it is: %w", err)
	}
	return nil
}

// Active reports, from memory, whether this process has the turn of a projection, and which it is.
func (rt *Runtime) Active(projection string) (epoch int64, active bool) {
	p, ok := rt.waiter.local[projection]
	if !ok {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch, p.active
}

// StoppedHere reports whether a projection stopped in this process, and nobody went on with it.
func (rt *Runtime) StoppedHere(ctx context.Context, projection string) bool {
	p, ok := rt.waiter.local[projection]
	if !ok || p.look().stop == nil {
		return false
	}
	_, stopped := errors.AsType[*Stop](rt.waiter.Stopped(ctx, projection))
	return stopped
}

// emptyFor empties what the projector keeps outside of the database once another process keeps its own: what is deleted from here on
// is deleted there alone, and must not stay here. Nothing is lost, as the next turn of this process builds it anew in any case.
//
// A turn that names what this process keeps, as its own of before a crash does, leaves it as it is.
func (r *runner) emptyFor(ctx context.Context, held *heldError) {
	outside, ok := r.projector.(interface {
		Targeted
		Resetter
	})
	if !ok || held.target == "" || held.target == r.emptiedFor || held.target == outside.Target() {
		return
	}
	limited, cancel := context.WithTimeout(ctx, takeLimit)
	defer cancel()
	err := func() error {
		if logID, err := r.logID(limited); err != nil || logID != held.logID {
			return err // a turn at another log says nothing about what is kept of this one
		}
		if err := r.adopt(limited, checkpoint{target: held.target}); err != nil || held.target == outside.Target() {
			return err
		}
		if err := outside.Reset(limited); err != nil {
			return err
		}
		r.emptiedFor = held.target
		r.log.InfoContext(ctx, "emptied what another process keeps now", "holder", held.holder, "target", held.target)
		return nil
	}()
	if err != nil && ctx.Err() == nil {
		r.log.WarnContext(ctx, "what another process keeps now is not emptied here yet", "holder", held.holder, "err", err)
	}
}
