package server

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/commands/pipeline/model"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/recall"
)

// semantic is what semantic search needs. Without an endpoint for embeddings it is the zero value.
type semantic struct {
	vectors *model.Embedder
	finder  *embeddings.Finder
}

// newSemantic makes the finder. Without an endpoint a process that runs projections drops that of
// the embeddings, since nothing would keep it up to date and the log has all of it.
func newSemantic(ctx context.Context, cfg Config, st *storage) (semantic, error) {
	if cfg.Embeddings.URL == "" && !cfg.Roles.parts().projections {
		return semantic{}, nil
	}
	if cfg.Embeddings.URL == "" {
		return semantic{}, dropEmbeddings(ctx, st.db, cfg.Logger)
	}
	vectors, err := model.NewEmbedder(cfg.Embeddings)
	if err != nil {
		return semantic{}, err
	}
	embed := func(ctx context.Context, text string) ([]float32, error) {
		found, err := vectors.Embed(ctx, []string{text})
		if err != nil {
			return nil, err
		}
		return found[0], nil
	}
	finder := embeddings.NewFinder(embed, embeddings.NewColumns(st.db, vectors.Name()), cfg.Logger)
	return semantic{vectors, finder}, nil
}

// search returns the finder as recall takes it, nil if search is lexical.
func (s semantic) search() recall.Semantic {
	if s.finder == nil {
		return nil
	}
	return s.finder
}

// register adds the metrics of the endpoint.
func (s semantic) register(registry *prometheus.Registry) {
	if s.finder == nil {
		return
	}
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "annals_embeddings_up", Help: "1 while the endpoint for embeddings answers recalls in time.",
		}, func() float64 {
			if up, _ := s.finder.Up(); up {
				return 1
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "annals_recalls_by_words_alone_total",
			Help: "Recalls that the endpoint for embeddings gave no answer for in time.",
		}, func() float64 {
			_, without := s.finder.Up()
			return float64(without)
		}),
	)
}

// dropEmbeddings drops the schema of the embeddings and the schemas that rebuilds of it left.
func dropEmbeddings(ctx context.Context, db *pgxpool.Pool, logger *slog.Logger) error {
	rows, err := db.Query(ctx,
		`select nspname from pg_namespace where nspname = $1 or nspname ~ ('^' || $1 || '_')`, embeddings.Name)
	if err != nil {
		return fmt.Errorf("list schemas of embeddings: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list schemas of embeddings: %w", err)
	}
	for _, name := range names {
		if _, err := db.Exec(ctx, "drop schema if exists "+pgx.Identifier{name}.Sanitize()+" cascade"); err != nil {
			return fmt.Errorf("drop schema %s: %w", name, err)
		}
		logger.InfoContext(ctx, "schema of embeddings dropped, since no endpoint is set", "schema", name)
	}
	return nil
}
