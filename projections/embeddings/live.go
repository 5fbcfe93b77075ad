package embeddings

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// LiveModel stores which model's vectors recall compares, for all processes. It is not part of the log: any model of
// which there are vectors may be live.
type LiveModel struct{ DB *pgxpool.Pool }

// Begin makes a model the live one if there is none yet, and returns the name of the live one.
func (l LiveModel) Begin(ctx context.Context, name string) (live string, err error) {
	_, err = l.DB.Exec(ctx, `insert into ops.embedding_model (name) values ($1) on conflict do nothing`, name)
	if err != nil {
		return "", fmt.Errorf("store the live embedding model: %w", err)
	}
	return l.Read(ctx)
}

// Stored returns the name of the live model, "" if there is none, and whether vectors of it are projected.
func (l LiveModel) Stored(ctx context.Context) (live string, vectors bool, err error) {
	var projected bool
	err = l.DB.QueryRow(ctx, `select coalesce((select name from ops.embedding_model), ''),
		to_regclass('embeddings.vectors') is not null`).Scan(&live, &projected)
	if err == nil && projected && live != "" {
		err = l.DB.QueryRow(ctx, `select exists (select from embeddings.vectors where model = $1 and dims > 0)`,
			live).Scan(&vectors)
	}
	if err != nil {
		return "", false, fmt.Errorf("read the model of the stored vectors: %w", err)
	}
	return live, vectors, nil
}

// Forget makes no model the live one.
func (l LiveModel) Forget(ctx context.Context) error {
	if _, err := l.DB.Exec(ctx, `delete from ops.embedding_model`); err != nil {
		return fmt.Errorf("forget the live embedding model: %w", err)
	}
	return nil
}

// Read returns the name of the live model.
func (l LiveModel) Read(ctx context.Context) (name string, err error) {
	if err := l.DB.QueryRow(ctx, `select name from ops.embedding_model`).Scan(&name); err != nil {
		return "", fmt.Errorf("read the live embedding model: %w", err)
	}
	return name, nil
}

// Switch makes a model the live one.
func (l LiveModel) Switch(ctx context.Context, name string) error {
	_, err := l.DB.Exec(ctx, `update ops.embedding_model set name = $1, switched_at = now()`, name)
	if err != nil {
		return fmt.Errorf("switch the live embedding model: %w", err)
	}
	return nil
}

// droppedAtOnce is how many vectors one statement deletes.
const droppedAtOnce = 1000

// DropOthers deletes the vectors of models that are not the live one, if it has been the live one for a while: until
// then other processes may compare those of the model before it.
func (l LiveModel) DropOthers(ctx context.Context, after time.Duration) error {
	for {
		tag, err := l.DB.Exec(ctx, `with live as (
				select name from ops.embedding_model where switched_at < now() - $1::interval
			), others as (
				select id, model from embeddings.vectors, live where model < live.name or model > live.name limit $2
			)
			delete from embeddings.vectors v using others o where v.id = o.id and v.model = o.model`, after, droppedAtOnce)
		if err != nil {
			return fmt.Errorf("drop the vectors of other models: %w", err)
		}
		if tag.RowsAffected() < droppedAtOnce {
			return nil
		}
	}
}

// Progress is how far the vectors of a model are made.
type Progress struct {
	// Model is the model of the vectors, Live the one that recall uses.
	Model string `json:"model"`
	Live  string `json:"live"`
	// Embedded of Captured data points have vectors of the model.
	Embedded int64 `json:"embedded"`
	Captured int64 `json:"captured"`
}

// Progress counts what a model embedded. "" is no model, with the zero value.
func (q Queries) Progress(ctx context.Context, model string) (p Progress, err error) {
	if p.Model = model; model == "" {
		return p, nil
	}
	err = q.DB.QueryRow(ctx, `select (select name from ops.embedding_model), count(*) filter (where model = $1), count(*)
		from embeddings.points where captured = revision`, model).Scan(&p.Live, &p.Embedded, &p.Captured)
	if err != nil {
		return p, fmt.Errorf("count embeddings: %w", err)
	}
	return p, nil
}
