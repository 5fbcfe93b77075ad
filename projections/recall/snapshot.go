package recall

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pg/switchover"
	"github.com/annals-project/annals/internal/projection"
)

// pass answers in a snapshot that confirms what the identity reaches, and in which no rebuild
// switched over. If the reach changes each time, the last attempt reads it within the snapshot. Each attempt that
// answers calls finished, if that is not nil, in its snapshot.
func (s *Service) pass(ctx context.Context, q Query, finished func(context.Context, *Pass) error) (Response, error) {
	for _, name := range requiredProjections {
		if err := s.config.Projections.Stopped(ctx, name); err != nil {
			return Response{}, fmt.Errorf("check projection %s: %w", name, err)
		}
	}
	now, attempts := instant(s.config.Now()), viewRetries
	if s.config.Viewers != nil {
		attempts++
	}
	for attempt := 1; ; attempt++ {
		p := &Pass{question: question{Query: q}, service: s, now: now, within: attempt > viewRetries}
		err := p.answer(ctx, finished)
		again := errors.Is(err, errReachChanged) || errors.Is(err, switchover.Err)
		if again && attempt < attempts {
			continue
		}
		if err != nil {
			return Response{}, err
		}
		return p.Page, nil
	}
}

// snapshotProjections are the projections whose tables a snapshot reads.
var snapshotProjections = []string{projection.Directory, projection.DataPoints, projection.Memories}

// requiredProjections are the projections that the gate reads.
var requiredProjections = []string{projection.DataPoints, projection.Memories}

// viewRetries is how often the reach is read before the snapshot. Reading it first keeps a
// transaction from waiting for the index.
const viewRetries = 3

// errReachChanged reports that the identity reaches something else in the snapshot than before.
var errReachChanged = errors.New("what the identity reaches has changed")

// readReach reads what the identity reaches. The snapshot that begins later must confirm it: a text that entered an
// audience after the identity had left it is not for this viewer.
func (p *Pass) readReach(ctx context.Context) error {
	viewers := p.service.config.Viewers
	if p.within {
		return p.readReachWithin(ctx)
	}
	if viewers == nil {
		return nil
	}
	seen, err := viewers.Reach(ctx, p.Project, p.Identity)
	if err != nil {
		return err
	}
	p.reach, p.Audiences = &seen, seen.Audiences
	return nil
}

// readReachWithin begins the snapshot with reading the reach. It lasts while the index is searched.
func (p *Pass) readReachWithin(ctx context.Context) error {
	if err := p.connect(ctx); err != nil {
		return err
	}
	batch := new(pgx.Batch)
	batch.Queue(begin)
	p.tables.Begin(batch)
	if err := p.conn.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("begin the snapshot: %w", err)
	}
	reach, err := p.service.config.Viewers.ReachIn(ctx, p.conn, p.Project, p.Identity)
	p.Audiences = reach.Audiences
	return err
}

// connect takes a connection for the snapshot, unless the pass has one.
func (p *Pass) connect(ctx context.Context) (err error) {
	if p.conn == nil {
		p.conn, err = p.service.config.DB.Acquire(ctx)
		p.tables = switchover.New(snapshotProjections...)
	}
	return err
}

// end ends the read-only transaction of the snapshot, and gives the connection back. If that fails, the pool drops the
// connection. It returns switchover.Err if the transaction may have read the tables of before and after a switch-over.
func (p *Pass) end(ctx context.Context, err error) error {
	if p.conn == nil {
		return err
	}
	defer p.conn.Release()
	if p.conn.Conn().PgConn().TxStatus() == 'I' {
		return err
	}
	batch := new(pgx.Batch)
	batch.Queue("rollback") // first: an error may have ended the transaction
	p.tables.End(batch)
	switch e := p.conn.SendBatch(ctx, batch).Close(); {
	case errors.Is(err, errReachChanged):
		return err
	case e == nil && p.tables.Check() != nil:
		return switchover.Err
	case e != nil && err == nil:
		return fmt.Errorf("end the snapshot: %w", e)
	default:
		return err
	}
}
