// Package prove makes the files of the audit log (docs/audit-files.md): proofs of the events of a send, a data point, a
// read or a deletion, and bundles of a whole tree.
package prove

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
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
	if len(c.list) == 0 {
		return nil, c.notFound()
	}
	slices.SortFunc(c.list, func(a, b subject) int {
		return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.part, b.part))
	})
	return p.files(ctx, r.Organization, c.list, r.WithSalt)
}

// files makes the files of events of one organization, all under one checkpoint.
func (p *Prover) files(ctx context.Context, organization uuid.UUID, list []subject, full bool) ([]File, error) {
	tree, ok, err := p.Trees.Tree(ctx, organization)
	if err != nil {
		return nil, err
	}
	numbers, last := make([]int64, len(list)), int64(-1)
	for i, s := range list {
		if numbers[i], ok, err = p.Trees.IndexOf(ctx, organization, s.Position); err != nil {
			return nil, err
		}
		if !ok {
			return nil, errUncovered
		}
		last = max(last, numbers[i])
	}
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
	for i, s := range list {
		data, err := p.file(ctx, t, s, numbers[i], full)
		if err != nil {
			return nil, err
		}
		if total += len(data); total > maxBytes {
			return nil, errTooMany
		}
		files = append(files, File{fileName(s, full), data})
	}
	return files, nil
}

// signed is a tree as a checkpoint has it.
type signed struct {
	organization uuid.UUID
	checkpoint   []byte
	size         int64
}

// fileName is the name of the file of an event. What holds the event itself has it in its name; the event of a root of
// read records has no text.
func fileName(s subject, full bool) string {
	name := s.Stream + "." + strconv.FormatInt(int64(s.Revision), 10)
	if s.part > 0 {
		name += "." + strconv.Itoa(s.part)
	}
	if full && s.kept == nil && s.read == nil {
		name += proof.WithSalt
	}
	return name + proof.Ending
}

// file makes the file of an event. What the tree has of it is the record of the event or nothing is made: else the
// file would not verify.
func (p *Prover) file(ctx context.Context, t signed, s subject, n int64, full bool) ([]byte, error) {
	leaves, err := p.Trees.Leaves(ctx, t.organization, n, n+1)
	if err == nil && len(leaves) != 1 {
		err = fmt.Errorf("leaf %d of %s is not there", n, t.organization)
	}
	if err != nil {
		return nil, err
	}
	record := leaves[0].Record
	e := proof.Extra{Read: s.read, Kept: s.kept}
	if s.kept == nil {
		stored := domain.Event{
			Organization: t.organization, ID: s.ID, Stream: s.Stream, Revision: int64(s.Revision), Type: s.Type,
			Meta: s.Meta, Data: s.Data,
		}
		switch mine, err := stored.Record(); {
		case err == nil && mine == record:
			e.Leaf, err = stored.Leaf()
			if err != nil {
				return nil, err
			}
			if full || s.read != nil {
				e.Metadata, e.Data = s.Meta, s.Data
			}
		default: // an event that was set aside has a record of its place alone
			e.Kept = &proof.Kept{Record: record[:], Stream: s.Stream, Revision: int64(s.Revision), EventID: s.ID}
		}
	} else if !bytes.Equal(s.kept.Record, record[:]) {
		return nil, fmt.Errorf("the record that was kept of %s, revision %d, is not that of leaf %d", s.Stream, s.Revision, n)
	}
	path, err := tlog.ProveRecord(t.size, n, p.Trees.Reader(ctx, t.organization))
	if err != nil {
		return nil, fmt.Errorf("prove leaf %d: %w", n, err)
	}
	extra, err := e.Encode()
	if err != nil {
		return nil, err
	}
	return proof.Proof{Index: n, Path: path, Checkpoint: t.checkpoint, Extra: extra}.Encode(), nil
}

// policy returns the policy of a tree: its keys, and the witnesses of the operator if they signed the checkpoint.
func (p *Prover) policy(t audit.Tree, cosigned bool) []byte {
	var text strings.Builder
	for _, key := range t.Verifiers {
		text.WriteString("log " + key + "\n")
	}
	if !cosigned {
		text.WriteString("quorum none\n")
		return []byte(text.String())
	}
	for line := range strings.Lines(p.Policy) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "log" && !strings.HasPrefix(fields[0], "#") {
			text.WriteString(strings.Join(fields, " ") + "\n")
		}
	}
	return []byte(text.String())
}

func line(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(text, '\n'), err
}
