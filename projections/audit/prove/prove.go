// Package prove makes the files of the audit log (docs/audit-files.md): proofs of the events of a send, a data point, a
// read or a deletion, and bundles of a whole tree.
package prove

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/audit"
)

// Kind is what a request names.
type Kind string

// The kinds. A source is named by the id that clients use, the others by a uuid.
const (
	Ingestion Kind = "ingestion"
	Source    Kind = "source"
	Read      Kind = "request"
	Deletion  Kind = "deletion"
)

// MaxFiles bounds the files of one request, and maxBytes what they have together.
const (
	MaxFiles = 2000
	maxBytes = 64 << 20
)

var (
	errNotFound = fault.New(fault.NotFound, fault.CodeNotFound, "the organization has nothing of this kind and id")
	errTooMany  = fault.New(fault.TooLarge, fault.CodeContentTooLarge,
		"the proofs are more than %d files or %d bytes: prove its parts, or export the audit log", MaxFiles, maxBytes)
	errUncovered = fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
		"no checkpoint covers it yet: wait some seconds")
)

// trees reads the trees (audit.Queries).
type trees interface {
	Tree(ctx context.Context, organization uuid.UUID) (t audit.Tree, ok bool, err error)
	Reader(ctx context.Context, organization uuid.UUID) tlog.HashReader
	Tile(ctx context.Context, organization uuid.UUID, level int, n int64, width int) (tile []byte, ok bool, err error)
	Leaves(ctx context.Context, organization uuid.UUID, from, to int64) ([]audit.Leaf, error)
	IndexOf(ctx context.Context, organization uuid.UUID, at eventstore.Position) (n int64, ok bool, err error)
}

// projects finds projects (access.Queries).
type projects interface {
	ProjectBySlug(ctx context.Context, organizationID uuid.UUID, slug string) (access.Project, bool, error)
}

// Prover makes proofs and bundles.
type Prover struct {
	DB       *pgxpool.Pool
	Journal  eventstore.Journal
	Trees    trees
	Projects projects
	Head     projections.Head
	// Policy is the policy of the operator, whose witnesses bundles name; "" for none.
	Policy string
}

// Request is what to prove.
type Request struct {
	Organization uuid.UUID
	// Project is a slug. A source needs it; another thing is then looked for in this project alone.
	Project string
	Kind    Kind
	ID      string
	// WithSalt adds the events themselves. Such a file can confirm the text as long as it exists.
	WithSalt bool
}

// File is a file with its name.
type File struct {
	Name string
	Data []byte
}

// Prove returns a file for each event that a request names. Its faults are not-found, also for what belongs to another
// organization, content-too-large, and service-unavailable while no checkpoint covers all of the events.
func (p *Prover) Prove(ctx context.Context, r Request) ([]File, error) {
	err := p.Head.Await(ctx, projection.Access, projection.DataPoints, projection.Trace, projection.Reads)
	if err != nil {
		return nil, err
	}
	c := &collector{Prover: p, Request: r, seen: map[string]bool{}}
	if err := c.collect(ctx); err != nil {
		return nil, err
	}
	slices.SortFunc(c.list, func(a, b subject) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.revision, b.revision), cmp.Compare(a.part, b.part))
	})
	return p.files(ctx, r.Organization, c.list)
}

// files makes the files of events of one organization, all under one checkpoint.
func (p *Prover) files(ctx context.Context, organization uuid.UUID, list []subject) ([]File, error) {
	tree, _, err := p.Trees.Tree(ctx, organization)
	if err != nil {
		return nil, err
	}
	numbers := make([]int64, 0, len(list))
	var covered []subject
	for _, s := range list {
		n, ok, err := p.Trees.IndexOf(ctx, organization, s.position)
		switch {
		case err != nil:
			return nil, err
		case ok:
			covered, numbers = append(covered, s), append(numbers, n)
		case s.position > tree.Position:
			return nil, errUncovered
		} // an event that was set aside may be of the tree of the deployment
	}
	if len(covered) == 0 {
		return nil, errNotFound
	}
	last := slices.Max(numbers)
	checkpoint, size := tree.Cosigned, tree.CosignedSize
	if checkpoint == "" || size <= last {
		checkpoint, size = tree.Checkpoint, tree.CheckpointSize
	}
	if checkpoint == "" || size <= last {
		return nil, errUncovered
	}
	t := signed{organization, []byte(checkpoint), size}
	var files []File
	total := 0
	for i, s := range covered {
		data, err := p.file(ctx, t, s, numbers[i])
		if err != nil {
			return nil, err
		}
		if total += len(data); total > maxBytes {
			return nil, errTooMany
		}
		files = append(files, File{s.fileName(), data})
	}
	return files, nil
}

// signed is a tree as a checkpoint has it.
type signed struct {
	organization uuid.UUID
	checkpoint   []byte
	size         int64
}

// file makes the file of an event. It fails if the tree has another one at its place.
func (p *Prover) file(ctx context.Context, t signed, s subject, n int64) ([]byte, error) {
	leaves, err := p.Trees.Leaves(ctx, t.organization, n, n+1)
	if err != nil {
		return nil, err
	}
	record := domain.Record(sha256.Sum256(s.Leaf))
	if s.Kept != nil {
		record = domain.Record(s.Kept.Record)
	}
	if len(leaves) != 1 || leaves[0].Record != record {
		return nil, fmt.Errorf("leaf %d of %s is not that of event %d of %s", n, t.organization, s.revision, s.stream)
	}
	path, err := tlog.ProveRecord(t.size, n, p.Trees.Reader(ctx, t.organization))
	if err != nil {
		return nil, fmt.Errorf("prove leaf %d: %w", n, err)
	}
	extra, err := s.Encode()
	if err != nil {
		return nil, err
	}
	return proof.Proof{Index: n, Path: path, Checkpoint: t.checkpoint, Extra: extra}.Encode(), nil
}

// policy returns the policy of a tree: its keys, and the witnesses of the operator if they signed the checkpoint.
func (p *Prover) policy(t audit.Tree, cosigned bool) []byte {
	if !cosigned {
		return []byte(domain.PolicyText(t.Verifiers, ""))
	}
	return []byte(domain.PolicyText(t.Verifiers, p.Policy))
}

func line(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(text, '\n'), err
}

// A statement takes an id, the organization, and the slug of a project or "".
const (
	ofProject = ` join access.projects p on p.id = t.project_id and p.organization_id = $2 and ($3 = '' or p.slug = $3) `
	// selectItems finds the items of a send, each with where the event of its revision is, null if that is erased.
	selectItems = `select i.data_point, i.ordinal, r.accepted from datapoints.sends t` + ofProject + `
		join datapoints.items i on i.ingestion_id = t.id
		left join trace.revisions r on r.data_point = i.data_point and r.number = i.revision
		where t.id = $1 order by i.ordinal limit 1 + $4::int`
	// selectRecords finds the parts of a read record.
	selectRecords = `select t.project_id, t.day, t.part, t.at from reads.records t` + ofProject + `
		join reads.days d on d.project_id = t.project_id and d.day = t.day where t.id = $1 order by t.part limit 1 + $4::int`
	// selectDeletion finds a deletion, and the data points that are not cleaned.
	selectDeletion = `select e.data_point from datapoints.deletions t` + ofProject + `
		left join datapoints.erasures e on e.deletion_id = t.id where t.id = $1 limit 1 + $4::int`
	// selectDeletions finds the deletions that may have kept the facts of a data point: all of one project and time.
	selectDeletions = `select d.id from trace.deleted t` + ofProject + `
		join datapoints.deletions d on d.project_id = t.project_id and d.accepted_at = t.deleted_at
		where t.data_point = $1 limit 1 + $4::int`
)

// item is an item of a send.
type item struct {
	DataPoint uuid.UUID
	Ordinal   int
	Accepted  *int64
}

// readPart is a part of a read record.
type readPart struct {
	Project uuid.UUID
	Day     string
	Part    int
	At      time.Time
}

// rows reads the rows of a statement about what a request names.
func rows[T any](
	ctx context.Context, p *Prover, statement string, r Request, id uuid.UUID, to pgx.RowToFunc[T],
) ([]T, error) {
	found, err := p.DB.Query(ctx, statement, id, r.Organization, r.Project, MaxFiles)
	if err != nil {
		return nil, fmt.Errorf("find what to prove: %w", err)
	}
	list, err := pgx.CollectRows(found, to)
	if err != nil {
		return nil, fmt.Errorf("find what to prove: %w", err)
	}
	if len(list) > MaxFiles {
		err = errTooMany
	}
	return list, err
}
