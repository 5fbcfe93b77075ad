package model

import (
	"context"
	"net/http"
)

// Embedder embeds texts with a model.
type Embedder struct {
	endpoint Endpoint
	client   *http.Client
}

// NewEmbedder makes an embedder. It does not call the endpoint.
func NewEmbedder(endpoint Endpoint) (*Embedder, error) {
	if err := endpoint.Validate(); err != nil {
		return nil, err
	}
	return &Embedder{endpoint: endpoint, client: endpoint.client()}, nil
}

// Name returns the name of the model.
func (e *Embedder) Name() string { return e.endpoint.Name }

// maxPassages is how many passages of a revision are embedded.
const maxPassages = 2048

// Passages is how many passages of a revision are embedded at most.
func (*Embedder) Passages() int { return maxPassages }

// Memories reports that memories are embedded too.
func (*Embedder) Memories() bool { return true }

// Probe makes a call as Embed does. It fails if the endpoint cannot be used.
func (e *Embedder) Probe(ctx context.Context) error {
	_, err := e.Embed(ctx, []string{hello})
	return unusable(err)
}

// Named is the same endpoint with another model.
func (e *Embedder) Named(name string) *Embedder {
	other := *e
	other.endpoint.Name = name
	return &other
}

// maxDims bounds the dimensions of a vector.
const maxDims = 8192

// Embed returns a vector for each text, all of the same dimensions, with one call of the endpoint.
// The error is a *pipeline.Failure, or that of the context.
func (e *Embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	var answer struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	request := map[string]any{"model": e.endpoint.Name, "input": texts, "encoding_format": "float"}
	if err := e.endpoint.post(ctx, e.client, "/embeddings", request, &answer); err != nil {
		return nil, err
	}
	vectors := make([][]float32, len(texts))
	for _, d := range answer.Data {
		n := len(d.Embedding)
		if d.Index < 0 || d.Index >= len(texts) || vectors[d.Index] != nil || n == 0 || n > maxDims {
			return nil, unreadable("the response of the model lacks a vector of each text")
		}
		vectors[d.Index] = d.Embedding
	}
	for _, v := range vectors {
		if len(v) == 0 || len(v) != len(vectors[0]) {
			return nil, unreadable("the response of the model lacks a vector of each text")
		}
	}
	return vectors, nil
}
