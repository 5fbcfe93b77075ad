package why

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
)

// MaxDropped is up to which number Taken counts dropped events.
const MaxDropped = 1_000

const (
	// maxBodies is up to which number Taken counts calls, and maxProjects bounds the projects that it looks at.
	maxBodies   = 10_000
	maxProjects = 1_000
)

// Taken is what an erasure of a person takes besides what that person wrote, and what it leaves.
type Taken struct {
	// Bodies is how many calls of the project lose their bodies. Above maxBodies it is one more.
	Bodies int `json:"bodies"`
	// Dropped is how many events of webhooks were dropped and can be replayed only before. Above MaxDropped it is one
	// more.
	Dropped int `json:"droppedEvents"`
	// Others is how many texts that others wrote hold the words of the name. HasMore is true if there may be more, and
	// NotSearched if the search failed.
	Others      int  `json:"textsOfOthers"`
	HasMore     bool `json:"hasMoreTexts"`
	NotSearched bool `json:"notSearched,omitempty"`
	// Projects are the slugs of other projects of the organization that have a record of the identity. NotAll is true if
	// the organization has more projects than were looked at.
	Projects []string `json:"otherProjects"`
	NotAll   bool     `json:"notAllProjects,omitempty"`
}

// BodiesAreMore and DroppedAreMore report counts that stopped.
func (t Taken) BodiesAreMore() bool { return t.Bodies > maxBodies }

// DroppedAreMore reports that the count stopped.
func (t Taken) DroppedAreMore() bool { return t.Dropped > MaxDropped }

// MostBodies and MostDropped are where the counts stop.
func (Taken) MostBodies() int { return maxBodies }

// MostDropped is where the count stops.
func (Taken) MostDropped() int { return MaxDropped }

// Takes finds what an erasure takes.
type Takes struct {
	Log interface {
		CountBodies(ctx context.Context, project uuid.UUID, most int) (int, error)
		DroppedEvents(
			ctx context.Context, project uuid.UUID, webhooks []string, since time.Time, limit int,
		) ([]requestlog.Event, error)
	}
	Trace     *Trace
	Points    datapoints.Queries
	Directory *directory.Queries
	Access    access.Queries
	Logger    *slog.Logger
}

// Taken returns what the erasure of an identity of a project takes at an instant. Each count is one bounded statement.
func (q Takes) Taken(
	ctx context.Context, organization uuid.UUID, project auth.Project, identity string, at time.Time,
) (t Taken, err error) {
	if t.Bodies, err = q.Log.CountBodies(ctx, project.ID, maxBodies+1); err != nil {
		return t, err
	}
	hooks, err := q.Access.Webhooks(ctx, project)
	if err != nil {
		return t, err
	}
	ids := make([]string, len(hooks))
	for i, w := range hooks {
		ids[i] = w.ID
	}
	dropped, err := q.Log.DroppedEvents(ctx, project.ID, ids, at.Add(-requestlog.Retention), MaxDropped+1)
	if err != nil {
		return t, err
	}
	t.Dropped = len(dropped)
	found, more, searched := q.Trace.Naming(ctx, project, identity)
	if t.HasMore, t.NotSearched = more, searched != nil; searched != nil {
		q.Logger.WarnContext(ctx, "texts that name a person are not searched", "err", searched)
	}
	if t.Others, err = q.Points.CountOfOthers(ctx, project.ID, found, identity); err != nil {
		return t, err
	}
	return t, q.elsewhere(ctx, &t, organization, project, identity)
}

// elsewhere adds the other projects that know the identity.
func (q Takes) elsewhere(
	ctx context.Context, t *Taken, organization uuid.UUID, project auth.Project, identity string,
) error {
	projects, err := q.Access.Projects(ctx, organization)
	if err != nil {
		return err
	}
	if t.NotAll = len(projects) > maxProjects; t.NotAll {
		projects = projects[:maxProjects]
	}
	records := make([]directory.Record, len(projects))
	for i, p := range projects {
		records[i] = directory.Record{ProjectID: p.ID, ID: stream.IdentityID(p.Namespace, identity)}
	}
	known, err := q.Directory.KnownRecords(ctx, records)
	t.Projects = []string{}
	for i, p := range projects {
		if _, is := known[records[i]]; is && p.ID != project.ID {
			t.Projects = append(t.Projects, p.Slug)
		}
	}
	return err
}

// Naming returns data points of a project whose texts hold all words of a name, as a search of the roots does. more is
// true if there may be others.
func (s *Trace) Naming(ctx context.Context, project auth.Project, name string) (ids []uuid.UUID, more bool, err error) {
	query, err := s.queryOf(ctx, project)
	if err != nil {
		return nil, false, err
	}
	query.Memories = 0
	found, err := s.searchEither(ctx, query, name)
	for id := range withAll(found.sources, found.terms) {
		ids = append(ids, id)
	}
	return ids, len(found.sources) == searchHits, err
}

// DroppedEvents returns dropped events of some webhooks of a project that can be replayed at an instant, the oldest
// first.
func (q Calls) DroppedEvents(
	ctx context.Context, project auth.Project, webhooks []string, at time.Time, limit int,
) ([]requestlog.Event, error) {
	return q.Log.DroppedEvents(ctx, project.ID, webhooks, at.Add(-requestlog.Retention), limit)
}

// MarkReplayed notes at an event by which call it was replayed.
func (q Calls) MarkReplayed(ctx context.Context, event requestlog.Entry, as uuid.UUID) error {
	return q.Log.MarkReplayed(ctx, event, as)
}
