package directory_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/directory"
)

// TestMain makes rapid check fewer histories than its default: each is written to Postgres several times. Its flag, as
// in make soak, sets another number.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
	pgtest.Main(m)
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func id(name string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)) }

var namespaces = stream.NewNamespaces(make([]byte, 32))

// storedNamespace is the namespace of a project in the log.
func storedNamespace(slug string) uuid.UUID { return id("namespace of " + slug) }

func project(slug string) auth.Project {
	namespace, err := namespaces.Of(storedNamespace(slug))
	if err != nil {
		panic(err)
	}
	return auth.Project{ID: id(slug), Number: 1, Slug: slug, Namespace: namespace}
}

// here is the project of most tests.
var here = project("here")

// who returns the record id of a name in the project of most tests.
func who(name string) uuid.UUID { return stream.IdentityID(here.Namespace, name) }

func whos(names ...string) []uuid.UUID {
	list := make([]uuid.UUID, len(names))
	for i, name := range names {
		list[i] = who(name)
	}
	return list
}

// blobs are the blobs that a test wrote; others are missing.
type blobs map[string][]byte

func (b blobs) ReadBlob(ctx context.Context, ref blob.Ref) ([]byte, error) {
	return projectiontest.Blobs(b).ReadBlob(ctx, ref)
}

func (b blobs) write(name string, v any) *blob.Ref {
	data, raw := v.([]byte)
	if !raw {
		var err error
		if data, err = json.Marshal(v); err != nil {
			panic(err)
		}
	}
	ref := &blob.Ref{Stream: stream.BlobName(id(name), id("command of "+name)), Size: int64(len(data))}
	b[ref.Stream] = data
	return ref
}

// traits are the traits of a record by key.
type traits = map[string]string

// writer writes events of this projection, each a second after the previous one.
type writer struct {
	projectiontest.Log
	blobs blobs
}

func newWriter(projects ...string) *writer {
	w := &writer{blobs: blobs{}}
	for n, slug := range append([]string{"here"}, projects...) {
		p := project(slug)
		w.Append(stream.Registry, &registry.ProjectCreated{
			OrganizationID: id("org"), ProjectID: p.ID, Number: int64(n + 1), Slug: slug, Name: slug,
			Namespace: storedNamespace(slug), CreatedAt: noon,
		})
	}
	return w
}

func (w *writer) now() time.Time { return noon.Add(time.Duration(len(w.Facts)) * time.Second) }

func (w *writer) record(name string, t traits) identity.Record {
	return identity.Record{
		Identity: name, Traits: identity.Traits{Inline: t}, Origin: identity.OriginAPI, CreatedAt: w.now(),
		UpdatedAt: w.now(),
	}
}

func (w *writer) put(name string, t traits) {
	w.Append(stream.Name(stream.Identity, who(name)),
		&identity.TraitsReplaced{ProjectID: here.ID, Record: w.record(name, t)})
}

func (w *writer) appear(name string) {
	w.Append(stream.Name(stream.Identity, who(name)),
		&identity.Appeared{ProjectID: here.ID, Identity: name, Origin: identity.OriginIngest, AppearedAt: w.now()})
}

func (w *writer) remove(name string) {
	w.Append(stream.Name(stream.Identity, who(name)), &identity.Removed{ProjectID: here.ID, RemovedAt: w.now()})
}

func (w *writer) fixed(slug string, names ...string) {
	members := whos(names...)
	slices.SortFunc(members, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	w.Append(stream.Name(stream.Audiences, here.ID), &audience.Put{
		ProjectID: here.ID, AudienceID: id(slug), Slug: slug, Name: slug, Kind: audience.KindFixed,
		Members: members, CreatedAt: w.now(), PutAt: w.now(),
	})
}

func (w *writer) rule(slug string, match audience.Match, conditions ...audience.Condition) {
	w.Append(stream.Name(stream.Audiences, here.ID), &audience.Put{
		ProjectID: here.ID, AudienceID: id(slug), Slug: slug, Name: slug, Kind: audience.KindRule,
		Rule: &audience.Rule{Match: match, Conditions: conditions}, CreatedAt: w.now(), PutAt: w.now(),
	})
}

func (w *writer) endAudience(slug string) {
	w.Append(stream.Name(stream.Audiences, here.ID),
		&audience.Removed{ProjectID: here.ID, AudienceID: id(slug), RemovedAt: w.now()})
}

func (w *writer) recompute(slug string) {
	w.Append(stream.Name(stream.Audiences, here.ID),
		&audience.Recomputed{ProjectID: here.ID, AudienceID: id(slug), RecomputedAt: w.now()})
}

// bulk commits a bulk write and writes its stage.
func (w *writer) bulk(name string, rows map[string]traits) eventstore.Position {
	var (
		lines   []byte
		targets []identity.BulkTarget
	)
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		line, err := json.Marshal(identity.Row{Identity: row, Traits: rows[row]})
		if err != nil {
			panic(err)
		}
		lines, targets = append(append(lines, line...), '\n'), append(targets,
			identity.BulkTarget{IdentityID: who(row), Decided: -1})
	}
	ref := w.blobs.write("stage of "+name, lines)
	return w.Append(stream.Name(stream.Bulk, id(name)), &identity.BulkAccepted{
		ProjectID: here.ID, Origin: identity.OriginAPI, FanOut: id("fan-out of " + name), Rows: *ref,
		Targets: targets, AcceptedAt: w.now(),
	})
}

func (w *writer) bulkRow(name, row string, commit eventstore.Position, record *identity.Record) {
	w.Append(stream.Name(stream.Identity, who(row)), &identity.BulkRowApplied{
		ProjectID: here.ID, BulkID: id(name), Commit: uint64(commit), Status: identity.Created, Record: record,
	})
}

func (w *writer) fannedOut(name string) {
	w.Append(stream.Name(stream.Bulk, id(name)), &identity.BulkFannedOut{ProjectID: here.ID})
}

func is(trait string, value string) audience.Condition {
	return audience.Condition{Trait: trait, Operator: audience.Is, Values: []string{value}}
}

// head is the head of a log that is fully applied.
type head struct{ stopped error }

func (head) Head(context.Context) (eventstore.Position, error)          { return 1, nil }
func (head) Wait(context.Context, eventstore.Position, ...string) error { return nil }
func (h head) Stopped(context.Context, string) error                    { return h.stopped }
func (head) Scopes(context.Context, auth.Project) (map[uuid.UUID]int64, error) {
	return map[uuid.UUID]int64{}, nil
}

func (head) PendingSeen(context.Context, auth.Project, []uuid.UUID) (map[uuid.UUID]time.Time, error) {
	return map[uuid.UUID]time.Time{}, nil
}

// fixture is a database and a log to apply to it.
type fixture struct {
	*testing.T
	*writer
	db        *pgxpool.Pool
	queries   *directory.Queries
	projector *directory.Projector
	apply     func()
}

// newFixture makes a fixture. Its apply applies the rest of the log as one page, and does its recounts.
func newFixture(t *testing.T, projects ...string) *fixture {
	t.Helper()
	w := &fixture{T: t, writer: newWriter(projects...)}
	w.projector = directory.New(w.blobs, namespaces, slog.New(slog.DiscardHandler))
	db := pgtest.Database(t)
	projectiontest.Make(t, db, w.projector)
	w.db, w.queries = db, directory.NewQueries(db, head{}, head{}, head{}, head{})
	done := 0
	w.apply = func() {
		t.Helper()
		projectiontest.Apply(t, db, w.projector, w.Facts[done:]...)
		done = len(w.Facts)
		runtest.Must(t, projectiontest.FollowUp(t.Context(), db, w.projector))
	}
	return w
}

// private is the private audience of an identity, uuid.Nil without a record.
func (w *fixture) private(name string) uuid.UUID {
	w.Helper()
	var created time.Time
	err := w.db.QueryRow(w.Context(), `select created_at from directory.identities where id = $1 and identity is not null`,
		who(name)).Scan(&created)
	if errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil
	}
	runtest.Must(w, err)
	return stream.PrivateAudienceID(who(name), created)
}

// reach returns the slugs a to d that a name reaches, next to what is project-visible and its private audience.
func (w *fixture) reach(name string) string {
	w.Helper()
	reach, err := w.queries.Reach(w.Context(), here, name)
	runtest.Must(w, err)
	reached := reach.Audiences
	if len(reached) == 0 || reached[0] != uuid.Nil {
		w.Fatalf("reach of %s does not begin with what is project-visible: %v", name, reached)
	}
	var slugs []string
	for _, slug := range []string{"a", "b", "c", "d"} {
		if slices.Contains(reached, id(slug)) {
			slugs = append(slugs, slug)
		}
	}
	if own := w.private(name); own != uuid.Nil && slices.Contains(reached, own) {
		reached = slices.DeleteFunc(slices.Clone(reached), func(id uuid.UUID) bool { return id == own })
	} else if own != uuid.Nil {
		w.Errorf("reach of %s lacks its private audience: %v", name, reached)
	}
	if len(slugs)+1 != len(reached) {
		w.Errorf("reach of %s holds what it should not: %v", name, reached)
	}
	return fmt.Sprint(slugs)
}

// applyOnce applies the log as one page and returns the error.
func applyOnce(t *testing.T, w *writer) error {
	t.Helper()
	db, p := pgtest.Database(t), directory.New(w.blobs, namespaces, slog.New(slog.DiscardHandler))
	projectiontest.Make(t, db, p)
	_, err := projectiontest.Rows(t.Context(), db, p, [][]eventstore.DecodedEvent{w.Facts})
	return err
}
