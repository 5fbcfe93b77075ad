package operatorapi

import (
	"context"
	"net/http"

	"github.com/annals-project/annals/projections/embeddings"
)

// EmbeddingProgress returns how far the vectors of semantic search are made, the zero value without a model.
var EmbeddingProgress = Operation[None, embeddings.Progress]{http.MethodGet, "/operator/embeddings"}

// EmbeddingRoute returns the route of EmbeddingProgress, for the name of the model that embeds, "" for none.
func EmbeddingRoute(queries embeddings.Queries, model string) Route {
	return EmbeddingProgress.Serve(func(ctx context.Context, _ None) (embeddings.Progress, error) {
		return queries.Progress(ctx, model)
	})
}
