package why

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
)

// Kind is what an id names.
type Kind string

// The kinds. A data point, identity, audience and webhook is named by the id that clients use, the others by a UUID.
const (
	FoundDataPoint Kind = "data point"
	FoundSend      Kind = "send"
	FoundRequest   Kind = "request"
	FoundSource    Kind = "source"
	FoundMemory    Kind = "memory"
	FoundDeletion  Kind = "deletion"
	FoundIdentity  Kind = "identity"
	FoundAudience  Kind = "audience"
	FoundWebhook   Kind = "webhook"
)

// Found is something that an id names, by the id under which its page shows it.
type Found struct {
	Kind Kind   `json:"kind"`
	ID   string `json:"id"`
}

// Finder finds ids.
type Finder struct {
	DB   *pgxpool.Pool
	Head projections.Head
	// Calls is nil without a request log.
	Calls loggedCalls
}

// Each part reads one row by a key, except the audiences of a project, which are few.
const selectFound = `
	select 'data point', source_id from datapoints.data_points where id in ($3, $4) and project_id = $1
	union all select 'data point', $2 from trace.deleted where data_point = $3 and project_id = $1
	union all select 'send', id::text from datapoints.sends where id = $4 and project_id = $1
	union all (select 'send', id::text from datapoints.sends where request_id = $4 and project_id = $1 limit 1)
	union all select 'source', node_id::text from trace.revisions where node_id = $4 and project_id = $1
	union all select 'memory', m.id::text from trace.memories m join trace.revisions r using (node_id)
		where m.id = $4 and r.project_id = $1
	union all (select 'memory', $4::text from trace.revisions where node_id between $6 and $7 and project_id = $1 limit 1)
	union all select 'deletion', id::text from datapoints.deletions where id = $4 and project_id = $1
	union all select 'identity', identity from directory.identities
		where id = $5 and project_id = $1 and identity is not null
	union all select 'audience', slug from directory.audiences where project_id = $1 and slug = $2
	union all select 'webhook', id from access.webhooks where id = $2 and project_id = $1`

// Find returns everything that an id of a project names: a source id, identity, slug, webhook or event of one, or the
// UUID of a data point, send, request, memory, node of the trace or deletion. Nothing is found in other projects.
func (q Finder) Find(ctx context.Context, project auth.Project, id string) (list []Found, err error) {
	if id == "" || strings.Contains(id, "\x00") {
		return nil, nil
	}
	parsed, err := uuid.Parse(id)
	if err != nil {
		parsed = uuid.Nil
		if request, ok := httpx.RequestOfEvent(id); ok {
			parsed = request
		}
	}
	_, err = again(ctx, q.Head, func() (found bool, err error) {
		list, err = q.inTables(ctx, project, id, parsed)
		return len(list) > 0, err
	}, projection.Access, projection.DataPoints, projection.Directory, projection.Trace)
	if err != nil {
		return nil, err
	}
	if parsed == uuid.Nil || q.Calls == nil {
		return list, nil
	}
	_, err = q.Calls.Get(ctx, project.ID, parsed)
	if isNotFound(err) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	return append(list, Found{FoundRequest, parsed.String()}), nil
}

func (q Finder) inTables(ctx context.Context, project auth.Project, id string, parsed uuid.UUID) ([]Found, error) {
	low, high, passage := datapoint.NodesOfPassage(parsed)
	if !passage {
		low, high = uuid.Max, uuid.Nil
	}
	rows, err := q.DB.Query(ctx, selectFound, project.ID, id, stream.DataPointID(project.Namespace, id), parsed,
		stream.IdentityID(project.Namespace, id), low, high)
	if err != nil {
		return nil, fmt.Errorf("find an id: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Found])
	if err != nil {
		return nil, fmt.Errorf("find an id: %w", err)
	}
	return list, nil
}
