package recallindex

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
)

// Name is the projection's name: its schema, its topic, and what callers wait for.
const Name = projection.RecallIndex

//go:embed schema.sql
var schema string

// Projector keeps the search index, and the schema recallindex, which records what the index holds.
//
// It writes the index before the transaction of the page commits. If the transaction is lost, the
// page comes again and writes the same: keys name the revision, and what a page both indexes and
// replaces is deleted by key.
//
// A page is analysed as the generation is that it is written to: while a new version is built in a
// shadow, the generation in use gets what arrives with its own analysis.
type Projector struct {
	projections.Base
	index     Index
	texts     Texts
	analyzers recall.Analyzers
	continued []int
	log       *slog.Logger
}

// version is that of the rows and documents.
const version = 6

// continued are the versions before that the projector goes on with until its own is built: their rows are the same,
// and recall.NewAnalyzers has their analysis. There is none.
var continued []int

// pageEvents is how many events make a page full.
const pageEvents = 2048

// New makes the projector. A page costs as much as dozens of its documents, and its terms are written once for the
// page, and again with each merge: a document in a page of 1,000 costs 30 % less than in one of 250.
func New(index Index, texts Texts, analyzers recall.Analyzers, log *slog.Logger) *Projector {
	return &Projector{
		index: index, texts: texts, analyzers: analyzers, continued: continued, log: log,
		Base: projections.NewBase(projections.Description{
			Name: Name, Version: version, Categories: []string{stream.DataPoint, stream.Memory, stream.Deletion}, Schema: schema,
			Pace:    projections.Pace{Min: 80 * time.Millisecond, Max: 200 * time.Millisecond, Full: pageEvents},
			Counted: []string{"data_points"},
		}),
	}
}

// Continues implements projections.Continuing.
func (p *Projector) Continues(of int) bool { return slices.Contains(p.continued, of) }

// Target returns the generation of the index. If it is not that of the checkpoint, the index lost
// its contents and the projection is rebuilt from position 0.
func (p *Projector) Target() string { return p.index.Generation() }

// Reset empties the index before a rebuild.
func (p *Projector) Reset(ctx context.Context) error { return p.index.Reset(ctx) }

// analyzer returns the analyzer of the generation in use.
func (p *Projector) analyzer() *recall.Analyzer { return p.analyzers.Of(p.index.Analysis()) }

// maxPageText is the most text, in bytes, that is indexed for one page of several events.
const maxPageText = 32 << 20

// Fit implements projections.Bounded, so that a page of many long texts ends within its time limit.
func (*Projector) Fit(events []eventstore.DecodedEvent) int {
	var text int64
	for i, f := range events {
		if text += textSize(f.Event); text > maxPageText && i > 0 {
			return i
		}
	}
	return len(events)
}

// Apply indexes the final state of the page: one change of the index, then one statement for the
// rows.
func (p *Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	if len(events) == 0 {
		return nil
	}
	page, err := load(ctx, tx, events)
	if err != nil {
		return err
	}
	if err := projections.Each(events, page.apply); err != nil {
		return err
	}
	analyzer := p.analyzer()
	changes, err := p.changes(ctx, analyzer, page)
	if err != nil {
		return err
	}
	for i := range changes {
		changes[i].Position, changes[i].Analysis = events[len(events)-1].Position, analyzer.Version()
	}
	if err := p.index.Apply(ctx, changes); err != nil {
		if errors.Is(err, ErrDamaged) {
			return err
		}
		return projections.Transient(fmt.Errorf("apply page to recall index: %w", err))
	}
	return page.save(ctx, tx)
}
