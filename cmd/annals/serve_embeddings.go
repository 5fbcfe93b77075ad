package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/commands/pipeline/model"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/recall"
)

// embedding is the parts that find by meaning; all are nil where no endpoint is set.
type embedding struct {
	embedder *pipeline.Embedder
	finder   *embeddings.Finder
}

// newEmbedding makes the parts. Without an endpoint it removes what one before left in the database: nothing keeps that up to date,
// and the log has all of it.
func (p *process) newEmbedding(ctx context.Context, events *commands.Log) (e embedding, err error) {
	endpoint := p.settings.embeddings()
	if endpoint.URL == "" {
		return e, dropEmbeddings(ctx, p.st.db, p.log)
	}
	vectors, err := model.NewEmbedder(endpoint)
	if err != nil {
		return e, err
	}
	e.embedder = &pipeline.Embedder{
		Log: events, List: embeddings.Queries{DB: p.st.work}, Progress: p.runtime.Inside(), Vectors: vectors,
		Logger: p.log, Now: p.now,
	}
	one := func(ctx context.Context, text string) ([]float32, error) {
		answer, err := vectors.Embed(ctx, []string{text})
		if err != nil {
			return nil, err
		}
		return answer[0], nil
	}
	e.finder = embeddings.NewFinder(one, embeddings.NewColumns(p.st.db, vectors.Name()), p.log)
	return e, nil
}

// meaning is the finder as recall takes it.
func (e embedding) meaning() recall.Meaning {
	if e.finder == nil {
		return nil
	}
	return e.finder
}

// embeddingProjectors are those of the embeddings; none where no endpoint is set.
func (s *Settings) embeddingProjectors() []projections.Projector {
	if s.EmbedURL == "" {
		return nil
	}
	return []projections.Projector{embeddings.Projector{}}
}

// roles are the background work of the embeddings.
func (e embedding) roles(p *process) []role {
	if e.embedder == nil || !p.settings.PipelineOn() {
		return nil
	}
	return []role{{"embedder", p.afterStart(e.embedder.Run)}}
}

// erases has the finisher remove the vectors of what was deleted.
func (e embedding) erases(f *pipeline.Finisher, tables *projections.Vacuum) {
	if e.finder != nil {
		f.Beside = []string{embeddings.Name}
		tables.Keepers = append(tables.Keepers, embeddings.Projector{})
	}
}

// metrics tells how recall does without the endpoint.
func (e embedding) metrics(registry *prometheus.Registry) {
	if e.finder == nil {
		return
	}
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "annals_embeddings_up", Help: "1 while the endpoint for embeddings answers recalls in time."}, func() float64 {
			if up, _ := e.finder.Up(); up {
				return 1
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "annals_recalls_by_words_alone_total", Help: "Recalls that the endpoint for embeddings gave no answer for in time."}, func() float64 {
			_, without := e.finder.Up()
			return float64(without)
		}),
	)
}

// dropEmbeddings removes the projection of the embeddings, and what rebuilds of it left.
func dropEmbeddings(ctx context.Context, db *pgxpool.Pool, log *slog.Logger) error {
	rows, err := db.Query(ctx, `select nspname from pg_namespace where nspname = $1 or nspname ~ ('^' || $1 || '_')`, embeddings.Name)
	if err != nil {
		return fmt.Errorf("look for embeddings: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for embeddings: %w", err)
	}
	for _, name := range names {
		if _, err := db.Exec(ctx, "drop schema if exists "+pgx.Identifier{name}.Sanitize()+" cascade"); err != nil {
			return fmt.Errorf("drop %s: %w", name, err)
		}
		log.InfoContext(ctx, "embeddings are not set any more; their schema is dropped", "schema", name)
	}
	return nil
}
