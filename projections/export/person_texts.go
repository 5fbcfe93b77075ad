package export

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/readlog"
)

// revisionCount is how many revisions of a data point are listed at once, markedTexts after how many texts the caller
// is asked.
const (
	revisionCount = 256
	markedTexts   = 64
)

// personCopy is one copy of a person.
type personCopy struct {
	*run
	author string
	mark   func() error
	sum    PersonSummary
}

// personText is a revision that the person wrote.
type personText struct {
	id       uuid.UUID
	sourceID string
	number   int
	newest   bool
	size     int
	// audience is the one while the revision was the newest, nil if unknown.
	audience             *uuid.UUID
	occurredAt, acceptAt time.Time
}

// personTextHead begins the line of a text.
type personTextHead struct {
	Type string `json:"type"`
	head
	Revision int    `json:"revision"`
	IsNewest bool   `json:"isNewest"`
	SentAt   string `json:"sentAt"`
}

// texts writes the texts of the person with what was derived from them, in the order of an export.
func (c *personCopy) texts(ctx context.Context) error {
	for {
		keys, err := c.keys(ctx, c.Selection)
		if err != nil || len(keys) == 0 {
			return err
		}
		c.After = &keys[len(keys)-1].Place
		of, err := c.authored(ctx, keys)
		if err != nil {
			return err
		}
		for _, k := range keys {
			if of[k.id] {
				if err := c.dataPoint(ctx, k); err != nil {
					return err
				}
			}
		}
		if err := c.next(); err != nil {
			return err
		}
	}
}

// next sends what is written, and asks whether to go on.
func (c *personCopy) next() error {
	if err := c.to.to.Flush(); err != nil {
		return err
	}
	return c.mark()
}

// authored returns which of some data points have a revision of the person.
func (c *personCopy) authored(ctx context.Context, keys []key) (map[uuid.UUID]bool, error) {
	rows, err := c.DB.Query(ctx, `select distinct data_point from datapoints.revisions
		where data_point = any($1::uuid[]) and author = $2 and project_id = $3`,
		pgarray.IDs(keys, func(k key) uuid.UUID { return k.id }), c.author, c.Project)
	if err != nil {
		return nil, fmt.Errorf("find the data points of a person: %w", err)
	}
	of := map[uuid.UUID]bool{}
	var id uuid.UUID
	if _, err = pgx.ForEachRow(rows, []any{&id}, func() error { of[id] = true; return nil }); err != nil {
		return nil, fmt.Errorf("find the data points of a person: %w", err)
	}
	return of, nil
}

const selectRevisions = `select r.number, r.occurred_at, r.accepted_at, r.author is not distinct from $4,
		case when d.revision = r.number then d.audience else r.audience end, d.revision = r.number,
		coalesce(octet_length(r.content), (r.content_blob->>'size')::bigint, 0)
			+ coalesce(octet_length(r.metadata), (r.metadata_blob->>'size')::bigint, 0)
	from datapoints.revisions r join datapoints.data_points d on d.id = r.data_point
	where r.data_point = $1 and r.number > $2 and r.accepted_at <= $3 order by r.number limit $5`

// dataPoint writes the texts that the person wrote of a data point.
func (c *personCopy) dataPoint(ctx context.Context, k key) error {
	for after := 0; ; {
		rows, err := c.DB.Query(ctx, selectRevisions, k.id, after, c.Selection.AsOf, c.author, revisionCount)
		if err != nil {
			return fmt.Errorf("list revisions: %w", err)
		}
		listed := 0
		var own []personText
		t, is := personText{id: k.id, sourceID: k.SourceID}, false
		_, err = pgx.ForEachRow(rows, []any{&t.number, &t.occurredAt, &t.acceptAt, &is, &t.audience, &t.newest, &t.size},
			func() error {
				listed, after = listed+1, t.number
				if one := t; is {
					own = append(own, one)
				} else {
					c.sum.Revisions++
				}
				return nil
			})
		if err != nil {
			return fmt.Errorf("list revisions: %w", err)
		}
		for _, t := range own {
			if err := c.text(ctx, t); err != nil {
				return err
			}
		}
		if listed < revisionCount {
			return nil
		}
		if err := c.next(); err != nil {
			return err
		}
	}
}

// text writes a text and the memories that were derived from it. Of a data point that was deleted since there is none.
func (c *personCopy) text(ctx context.Context, t personText) error {
	keys := []key{{id: t.id, revision: t.number}}
	found, err := c.Reader.texts(ctx, keys)
	if err == nil {
		err = show(ctx, keys, found)
	}
	if err != nil {
		return err
	}
	p, live := found[t.id]
	if !live {
		return nil
	}
	if live, err = c.load(ctx, p); err != nil || !live {
		return err
	}
	if t.audience != nil {
		if p.readers, err = c.readersOf(ctx, *t.audience, p.author); err != nil {
			return err
		}
	}
	at := Place{t.occurredAt.UTC(), t.sourceID}
	if err := c.to.text(personTextHead{
		"text", headOf(at, p), t.number, t.newest, instant(t.acceptAt),
	}, p); err != nil {
		return err
	}
	if c.sum.Texts++; c.sum.Texts%markedTexts == 0 {
		if err := c.next(); err != nil {
			return err
		}
	}
	return c.memories(ctx, t)
}

// personMemory begins the line of a memory.
type personMemory struct {
	Type         string `json:"type"`
	SourceID     string `json:"sourceId"`
	Revision     int    `json:"revision"`
	Number       int    `json:"number"`
	ID           string `json:"id"`
	Kind         string `json:"kind"`
	OccurredAt   string `json:"occurredAt"`
	ResolvedFrom string `json:"resolvedFrom,omitempty"`
	ResolvedTo   string `json:"resolvedTo,omitempty"`
}

const selectPersonMemories = `select ordinal, id, kind, content, excerpt, occurred_at, resolved_from, resolved_to
	from memories.memories where data_point = $1 and revision = $2 and project_id = $3 and ordinal > $4
	order by ordinal limit $5`

// memories writes the memories of a text.
func (c *personCopy) memories(ctx context.Context, t personText) error {
	for after := -1; ; {
		rows, err := c.DB.Query(ctx, selectPersonMemories, t.id, t.number, c.Project, after, memoryCount)
		if err != nil {
			return fmt.Errorf("read memories: %w", err)
		}
		list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d derived, err error) {
			return d, row.Scan(&d.number, &d.id, &d.kind, &d.content, &d.excerpt, &d.occurredAt, &d.resolvedFrom, &d.resolvedTo)
		})
		if err != nil {
			return fmt.Errorf("read memories: %w", err)
		}
		for _, d := range list {
			h := personMemory{
				Type: MemoryType, SourceID: t.sourceID, Revision: t.number, Number: d.number, ID: d.id.String(), Kind: d.kind,
				OccurredAt: instant(d.occurredAt), ResolvedFrom: optional(d.resolvedFrom), ResolvedTo: optional(d.resolvedTo),
			}
			if err := readlog.From(ctx).Show(ctx, reads.Export, reads.Shown{Node: d.id}); err != nil {
				return err
			}
			if err := c.to.derived(h, d); err != nil {
				return err
			}
			after = d.number
		}
		if c.sum.Memories += len(list); len(list) < memoryCount {
			return nil
		}
	}
}
