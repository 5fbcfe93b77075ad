package recall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/switchover"
	"github.com/annals-project/annals/internal/readlog"
)

// TextQuery asks for a text by its source id, as an identity.
type TextQuery struct {
	Project auth.Project
	// Organization is the organization whose share of concurrent recalls the query counts against.
	Organization uuid.UUID
	Identity     string
	SourceID     string
}

// NewestQuery asks for the newest texts that an identity may read, at most Limit.
type NewestQuery struct {
	Project      auth.Project
	Organization uuid.UUID
	Identity     string
	Limit        int
}

// NewestBytes is the most bytes of the texts of a NewestQuery, unless the first one alone has more.
const NewestBytes = 256 << 10

// Text is the newest revision of a data point that the identity may read.
type Text struct {
	Node                      uuid.UUID
	SourceID, Author, Content string
	Label                     *string
	OccurredAt                time.Time
}

// found is a text that is not read yet.
type found struct {
	Text

	key  revisionKey
	size int64
	big  *blob.Ref
}

// selectText finds data points in the audiences of a viewer, by the rule of the gate.
const selectText = `select d.id, d.revision, r.node_id, d.source_id, coalesce(r.author, ''), r.label, d.occurred_at,
		coalesce(octet_length(r.content), 0), r.content_blob
	from datapoints.data_points d
	join datapoints.revisions r on r.data_point = d.id and r.number = d.revision
	where ` + mayRead

// Text returns a text, by the rule of Recall for who may read it. The fault is data-point-not-found if there is none,
// and if the identity may not read it. The bytes of the text are reserved from the allowance that the context carries.
func (s *Service) Text(ctx context.Context, q TextQuery) (t Text, err error) {
	texts, _, err := s.texts(ctx, q.Organization, q.Project, q.Identity, selectText+` and d.id = $3`,
		stream.DataPointID(q.Project.Namespace, q.SourceID))
	if err == nil {
		err = show(ctx, reads.Text, q.Identity, texts)
	}
	if err != nil {
		return t, err
	}
	if len(texts) == 0 {
		return t, fault.New(fault.NotFound, fault.CodeDataPointNotFound, "there is no text with this source id")
	}
	return texts[0], nil
}

// Newest returns the newest texts, the latest first, by the rule of Recall for who may read them. left is how many of
// them did not fit into NewestBytes.
func (s *Service) Newest(ctx context.Context, q NewestQuery) (texts []Text, left int, err error) {
	if q.Limit > limit.RecallResults {
		return nil, 0, fault.New(fault.Invalid, fault.CodeInvalidRequest, "limit is at most %d", limit.RecallResults)
	}
	texts, left, err = s.texts(ctx, q.Organization, q.Project, q.Identity,
		selectText+` and d.occurred_at <= $3 order by d.occurred_at desc, d.id limit $4`, instant(s.config.Now()), q.Limit)
	if err == nil {
		err = show(ctx, reads.Newest, q.Identity, texts)
	}
	return texts, left, err
}

// show adds texts to the read of the request.
func show(ctx context.Context, way reads.Way, identity string, texts []Text) error {
	read := readlog.From(ctx)
	if read == nil {
		return nil
	}
	list := make([]reads.Shown, len(texts))
	for i, t := range texts {
		list[i] = reads.Shown{Node: t.Node, DataPoint: read.Point(t.SourceID)}
	}
	read.Asked(way, identity, "")
	return read.Show(ctx, way, list...)
}

// texts reads the texts that a statement finds, as an identity. The first two parameters of the statement are the
// project and what the identity reaches.
func (s *Service) texts(
	ctx context.Context, organization uuid.UUID, project auth.Project, identity, sql string, args ...any,
) (texts []Text, left int, err error) {
	err = s.run(ctx, allowance.Owner{Organization: organization, Project: project.ID}, func() error {
		for _, name := range requiredProjections {
			if err := s.config.Projections.Stopped(ctx, name); err != nil {
				return fmt.Errorf("check projection %s: %w", name, err)
			}
		}
		var list []found
		err := switchover.Snapshot(ctx, s.config.DB, snapshotProjections, func(ctx context.Context, tx pgx.Tx) error {
			reach, err := s.config.Viewers.ReachIn(ctx, tx, project, identity)
			if err != nil {
				return err
			}
			list, left, err = s.readFound(ctx, tx, sql, append([]any{project.ID, reach.Audiences}, args...))
			return err
		})
		if err != nil {
			return err
		}
		texts, err = s.readBlobs(ctx, list)
		return err
	})
	return texts, left, err
}

// readFound finds texts, and reads those in rows of the database, up to NewestBytes of all.
func (s *Service) readFound(
	ctx context.Context, tx pgx.Tx, sql string, args []any,
) (list []found, left int, err error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("find texts: %w", err)
	}
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (f found, err error) {
		err = row.Scan(&f.key.dataPoint, &f.key.revision, &f.Node, &f.SourceID, &f.Author, &f.Label, &f.OccurredAt, &f.size,
			&f.big)
		f.OccurredAt = f.OccurredAt.UTC()
		if f.big != nil {
			f.size = f.big.Size
		}
		return f, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("find texts: %w", err)
	}
	var wanted []part
	bytes := int64(0)
	for i, f := range list {
		if bytes += f.size; i > 0 && bytes > NewestBytes {
			list, left = list[:i], len(list)-i
			break
		}
		if f.big == nil {
			wanted = append(wanted, part{revisionKey: f.key, content: true})
		}
	}
	if err := allowance.Reserve(ctx, 2*bytes); err != nil { // as they are read, and as strings
		return nil, 0, err
	}
	bodies, err := readBodies(ctx, tx, wanted)
	if err != nil {
		return nil, 0, err
	}
	for i, f := range list {
		if b := bodies[f.key]; b != nil {
			list[i].Content = string(b.content)
		}
	}
	return list, left, nil
}

// readBlobs reads the texts that are in blobs. It leaves out one that is being erased.
func (s *Service) readBlobs(ctx context.Context, list []found) ([]Text, error) {
	texts := make([]Text, 0, len(list))
	for _, f := range list {
		if f.big != nil {
			data, err := s.config.Blobs.ReadBlob(ctx, *f.big)
			if _, lost := errors.AsType[*eventstore.BlobError](err); lost {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("read text: %w", err)
			}
			f.Content = string(data)
		}
		texts = append(texts, f.Text)
	}
	return texts, nil
}
