package recallindex

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// Name is the projection's name: its schema, its topic, and what answers wait for.
const Name = "recallindex"

//go:embed schema.sql
var schema string

// Projector keeps the search index, and schema recallindex, which says what the index holds.
//
// The index is written before the transaction of the page commits. Where the transaction is lost, the page comes again
// and writes the same: keys name the revision, and what a page indexes and replaces again is removed by name.
type Projector struct {
	index    Index
	texts    Texts
	analyzer *recall.Analyzer
	log      *slog.Logger
}

// New makes the projector.
func New(index Index, texts Texts, analyzer *recall.Analyzer, log *slog.Logger) *Projector {
	return &Projector{index: index, texts: texts, analyzer: analyzer, log: log}
}

// Name implements projections.Projector.
func (*Projector) Name() string { return Name }

// Version implements projections.Projector.
func (*Projector) Version() int { return 3 }

// Families implements projections.Projector.
func (*Projector) Families() []string {
	return []string{stream.DataPoint, stream.Memory, stream.Deletion}
}

// Schema implements projections.Projector.
func (*Projector) Schema() string { return schema }

// Target names what the projection fills outside of Postgres. Where it is not the one that the checkpoint was made with,
// the index lost its contents, and the projection has to be built anew from the first event.
func (p *Projector) Target() string { return p.index.Generation() }

// Reset empties the index, before the projection is built anew.
func (p *Projector) Reset(ctx context.Context) error { return p.index.Reset(ctx) }

// pageText is the most text, in bytes, that is indexed for one page of several events.
const pageText = 32 << 20

// Fit implements projections.Bounded: a page of many long texts would not end within its limit.
func (*Projector) Fit(facts []eventstore.Fact) int {
	var text int64
	for i, f := range facts {
		if text += textSize(f.Event); text > pageText && i > 0 {
			return i
		}
	}
	return len(facts)
}

// Apply indexes what the page leaves standing: one change of the index, then one statement for the rows.
func (p *Projector) Apply(ctx context.Context, tx pgx.Tx, facts []eventstore.Fact) error {
	if len(facts) == 0 {
		return nil
	}
	page, err := load(ctx, tx, facts)
	if err != nil {
		return err
	}
	if err := projections.Each(facts, page.apply); err != nil {
		return err
	}
	changes, err := p.changes(ctx, page)
	if err != nil {
		return err
	}
	if err := p.index.Apply(ctx, changes); err != nil {
		if errors.Is(err, ErrDamaged) {
			return err
		}
		return projections.Transient(fmt.Errorf("index: %w", err))
	}
	return page.save(ctx, tx)
}
