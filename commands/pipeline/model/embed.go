package model

import (
	"context"
	"net/http"

	"github.com/annals-project/annals/commands/pipeline"
)

// Embedder asks a model where texts point to in the space of meanings.
type Embedder struct {
	endpoint Endpoint
	client   *http.Client
}

var _ pipeline.Vectors = (*Embedder)(nil)

// NewEmbedder makes an embedder; the endpoint is asked for the first time when there is something to embed.
func NewEmbedder(endpoint Endpoint) (*Embedder, error) {
	if err := endpoint.Validate(); err != nil {
		return nil, err
	}
	return &Embedder{endpoint: endpoint, client: endpoint.client()}, nil
}

// Name implements pipeline.Vectors.
func (e *Embedder) Name() string { return e.endpoint.Name }

// maxDims is the most dimensions of a vector that is taken.
const maxDims = 8192

// Embed implements pipeline.Vectors, in one call of the endpoint.
func (e *Embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	var answer struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	err := e.endpoint.post(ctx, e.client, "/embeddings", map[string]any{"model": e.endpoint.Name, "input": texts, "encoding_format": "float"}, &answer)
	if err != nil {
		return nil, err
	}
	vectors := make([][]float32, len(texts))
	for _, d := range answer.Data {
		if d.Index < 0 || d.Index >= len(texts) || vectors[d.Index] != nil || len(d.Embedding) == 0 || len(d.Embedding) > maxDims {
			return nil, unreadable("the answer of the model does not hold a vector for each text")
		}
		vectors[d.Index] = d.Embedding
	}
	for _, v := range vectors {
		if len(v) == 0 || len(v) != len(vectors[0]) {
			return nil, unreadable("the answer of the model does not hold a vector for each text")
		}
	}
	return vectors, nil
}
