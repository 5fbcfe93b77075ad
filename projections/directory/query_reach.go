package directory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/keylock"
	"github.com/annals-project/annals/internal/pg/switchover"
)

// Reach is what an identity may read at one moment. It holds what that depends on, to check it
// against a later snapshot.
type Reach struct {
	// Audiences are the audiences that the identity belongs to, sorted by id, after uuid.Nil, which
	// is what is project-visible. One of them is the private audience of its record. An identity
	// without a record reaches only uuid.Nil, even if a rule matches absent traits.
	Audiences []uuid.UUID

	project, identity uuid.UUID
	// rules are those of the project as of rulesAt. They are read only if the identity has a
	// record.
	rulesAt eventstore.Position
	rules   *audience.Matcher
	known   bool
}

// Reach returns what an identity reaches at the position of the projection. The fault is
// service-unavailable while the projection is stopped.
func (q *Queries) Reach(ctx context.Context, project auth.Project, identity string) (Reach, error) {
	if err := q.requireRunning(ctx); err != nil {
		return Reach{}, err
	}
	id := stream.IdentityID(project.Namespace, identity)
	v, rules, err := q.readReach(ctx, project, id)
	if err != nil {
		return Reach{}, fmt.Errorf("find what an identity reaches: %w", err)
	}
	return reachOf(project.ID, id, v, rules), nil
}

// Snapshot is a transaction that reads one snapshot.
type Snapshot interface {
	querier
	rowQuerier
}

// ReachIn is Reach in the snapshot of a transaction.
func (q *Queries) ReachIn(ctx context.Context, tx Snapshot, project auth.Project, identity string) (Reach, error) {
	if err := q.requireRunning(ctx); err != nil {
		return Reach{}, err
	}
	id := stream.IdentityID(project.Namespace, identity)
	v, err := readViewer(ctx, tx, project.ID, id)
	if err != nil {
		return Reach{}, fmt.Errorf("find what an identity reaches: %w", err)
	}
	var rules *audience.Matcher
	if v.known && v.rulesAt != 0 {
		if rules, err = q.rulesAsOf(ctx, tx, project.ID, v.rulesAt); err != nil {
			return Reach{}, err
		}
	}
	return reachOf(project.ID, id, v, rules), nil
}

func reachOf(project, identity uuid.UUID, v viewer, rules *audience.Matcher) Reach {
	return Reach{
		Audiences: v.reach(rules), project: project, identity: identity,
		rulesAt: v.rulesAt, rules: rules, known: v.known,
	}
}

// Confirm queues a check whether the identity reaches exactly the same in the snapshot of the
// batch, and passes the result to report. It also reports false if a single query cannot decide
// that: if the rules of the project changed, or if the identity got a record.
func (r Reach) Confirm(batch *pgx.Batch, report func(same bool)) {
	batch.Queue(selectViewer, r.project, r.identity).Query(func(rows pgx.Rows) error {
		var now viewer
		for rows.Next() {
			if err := rows.Scan((*uint64)(&now.rulesAt), &now.known, (*[]byte)(&now.traitKeys), &now.private,
				&now.fixed); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if now.known && (!r.known || now.rulesAt != r.rulesAt) {
			report(false)
			return nil
		}
		report(slices.Equal(now.reach(r.rules), r.Audiences))
		return nil
	})
}

// selectViewer reads the position of the newest change of a project's audiences, and the trait keys,
// the private and the fixed audiences of an identity. "offset 0" makes Postgres start from the identity; else it
// would read all audiences of the project.
const selectViewer = `select p.rules_at, i.id is not null, i.marks, i.private, case when i.id is null then '{}' else array(
		select a.id from (select audience_id from directory.members where identity_id = i.id offset 0) m
		cross join lateral (select id, project_id from directory.audiences where id = m.audience_id offset 0) a
		where a.project_id = p.project_id) end
	from directory.projects p
	left join directory.identities i on i.id = $2 and i.project_id = p.project_id and i.identity is not null
	where p.project_id = $1`

// viewer is an identity with what its reach depends on.
type viewer struct {
	rulesAt   eventstore.Position
	known     bool // it has a record
	traitKeys audience.TraitKeys
	private   *uuid.UUID // nil without a record
	fixed     []uuid.UUID
}

// reach lists the audiences that a viewer reaches, sorted by id.
func (v viewer) reach(rules *audience.Matcher) []uuid.UUID {
	reached := []uuid.UUID{uuid.Nil}
	if !v.known {
		return reached
	}
	reached = append(append(append(reached, *v.private), v.fixed...), rules.Reached(v.traitKeys)...)
	slices.SortFunc(reached, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }) // uuid.Nil is first
	return reached
}

// readReach reads a viewer and the rules of its project as of one snapshot. It uses cached rules if
// no audience of the project changed since.
func (q *Queries) readReach(
	ctx context.Context, project auth.Project, id uuid.UUID,
) (v viewer, rules *audience.Matcher, err error) {
	if v, err = readViewer(ctx, q.db, project.ID, id); err != nil || !v.known || v.rulesAt == 0 {
		return v, nil, err
	}
	if rules, ok := q.rules.get(project.ID, v.rulesAt); ok {
		return v, rules, nil
	}
	release, err := q.rules.acquire(ctx, project.ID)
	if err != nil {
		return viewer{}, nil, err
	}
	defer release()
	err = switchover.Snapshot(ctx, q.db, []string{Name}, func(ctx context.Context, tx pgx.Tx) (err error) {
		v, rules, err = q.readReachIn(ctx, tx, project, id)
		return err
	})
	return v, rules, err
}

// readReachIn is readReach within a transaction. Unless the rules are cached, the caller must have
// acquired the right to read them.
func (q *Queries) readReachIn(
	ctx context.Context, tx pgx.Tx, project auth.Project, id uuid.UUID,
) (v viewer, rules *audience.Matcher, err error) {
	if v, err = readViewer(ctx, tx, project.ID, id); err != nil || v.rulesAt == 0 {
		return v, nil, err
	}
	rules, err = q.rulesAsOf(ctx, tx, project.ID, v.rulesAt)
	return v, rules, err
}

// rulesAsOf returns the rules of a project within a snapshot; at is the newest change of its
// audiences there. It does not acquire: those that do wait for a connection, which this caller
// holds.
func (q *Queries) rulesAsOf(
	ctx context.Context, tx querier, project uuid.UUID, at eventstore.Position,
) (*audience.Matcher, error) {
	return q.rules.load(project, at, func() (*audience.Matcher, error) {
		return readRules(ctx, tx, selectRulesQualified, project)
	})
}

// rowQuerier is a pool or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func readViewer(ctx context.Context, db rowQuerier, project, id uuid.UUID) (v viewer, err error) {
	row := db.QueryRow(ctx, selectViewer, project, id)
	err = row.Scan((*uint64)(&v.rulesAt), &v.known, (*[]byte)(&v.traitKeys), &v.private, &v.fixed)
	if errors.Is(err, pgx.ErrNoRows) {
		return viewer{}, nil
	}
	return v, err
}

// The limits of the cache in bytes, for all projects and for one. The largest rules that a project
// may have fit. A larger set is read each time.
const (
	maxCachedRules    = 64 << 20
	maxCachedRulesOne = 20 << 20
)

// cachedRules are the rules of a project as of a position of its audiences.
type cachedRules struct {
	at    eventstore.Position
	rules *audience.Matcher
	// bytes is their size.
	bytes int
}

// cost is the size that they count with. No rules also take some memory.
func (r cachedRules) cost() int { return r.bytes + 512 }

// ruleCache caches the rules of projects until an audience of the project changes. The position of
// the newest change identifies the rules, since the log never changes up to a position.
type ruleCache struct {
	mu       sync.Mutex
	projects map[uuid.UUID]cachedRules
	bytes    int
	// turns limits the concurrent reads of rule sets, each of which may be as large as the limits allow. Others
	// wait for the result of the one that reads those of their project.
	turns
}

// maxTurns is the most callers that have a turn.
const maxTurns = 4

// turns lets one caller of a project work at a time, and a few of all.
type turns struct {
	byProject keylock.Map[uuid.UUID]
	all       chan struct{}
}

func newTurns() turns { return turns{all: make(chan struct{}, maxTurns)} }

func newRuleCache() *ruleCache {
	return &ruleCache{projects: map[uuid.UUID]cachedRules{}, turns: newTurns()}
}

func (c *ruleCache) get(project uuid.UUID, at eventstore.Position) (*audience.Matcher, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cached, ok := c.projects[project]
	return cached.rules, ok && cached.at == at
}

// put caches rules. It evicts the largest first, so that large ones never evict smaller ones.
func (c *ruleCache) put(project uuid.UUID, rules cachedRules) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.projects[project]; ok {
		c.drop(project)
	}
	if rules.bytes > maxCachedRulesOne {
		return
	}
	c.projects[project] = rules
	c.bytes += rules.cost()
	for c.bytes > maxCachedRules {
		biggest, most := uuid.Nil, 0
		for other, cached := range c.projects {
			if n := cached.cost(); n > most {
				biggest, most = other, n
			}
		}
		c.drop(biggest)
	}
}

func (c *ruleCache) drop(project uuid.UUID) {
	c.bytes -= c.projects[project].cost()
	delete(c.projects, project)
}

// load returns cached rules, or reads and caches them.
func (c *ruleCache) load(
	project uuid.UUID, at eventstore.Position, read func() (*audience.Matcher, error),
) (*audience.Matcher, error) {
	if rules, ok := c.get(project, at); ok {
		return rules, nil
	}
	rules, err := read()
	if err == nil {
		c.put(project, cachedRules{at: at, rules: rules, bytes: rules.Bytes()})
	}
	return rules, err
}

// acquire waits until the caller may work for a project. The caller must not hold a connection
// meanwhile, else callers could wait for each other's connections.
func (t *turns) acquire(ctx context.Context, project uuid.UUID) (release func(), err error) {
	unlock, err := t.byProject.Lock(ctx, project)
	if err != nil {
		return nil, err
	}
	select {
	case t.all <- struct{}{}:
		return func() { <-t.all; unlock() }, nil
	case <-ctx.Done():
		unlock()
		return nil, ctx.Err()
	}
}
