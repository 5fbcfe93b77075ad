package model

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
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

// Encoder is a model in this process, such as *minilm.Model. It is safe for concurrent use.
type Encoder interface {
	// Name names the model with the digest of its weights.
	Name() string
	// Embed returns the vector of a text. The error is that of the context.
	Embed(ctx context.Context, text string) ([]float32, error)
}

// Builtin embeds texts in this process.
type Builtin struct{ model Encoder }

// NewBuiltin makes an embedder of a model.
func NewBuiltin(model Encoder) *Builtin { return &Builtin{model} }

// Name returns the name of the model, with the digest of its weights.
func (b *Builtin) Name() string { return b.model.Name() }

// builtinPassages is how many passages of a revision are embedded: each takes up to a tenth of a second of a processor.
const builtinPassages = 32

// Passages is how many passages of a revision are embedded at most.
func (*Builtin) Passages() int { return builtinPassages }

// Memories reports that memories are not embedded: they repeat their source.
func (*Builtin) Memories() bool { return false }

// questionBytes is how much of a question is embedded, so that a long one does not make its recall wait.
const questionBytes = 512

// EmbedQuestion returns the vector of a question. The error is that of the context.
func (b *Builtin) EmbedQuestion(ctx context.Context, text string) ([]float32, error) {
	return b.model.Embed(ctx, text[:min(len(text), questionBytes)])
}

// Embed returns a vector for each text. It gives way to other work: after each text it rests, the longer the more
// the processors have to do. The error is that of the context.
func (b *Builtin) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	runtime.LockOSThread() // the time of the thread is that of the model
	defer runtime.UnlockOSThread()
	rest := newRest()
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		start, used := time.Now(), threadTime()
		vector, err := b.model.Embed(ctx, text)
		if err != nil {
			return nil, err
		}
		vectors[i] = vector
		if err := backoff.Pause(ctx, rest.after(time.Since(start), threadTime()-used), nil); err != nil {
			return nil, err
		}
	}
	return vectors, nil
}

// rest decides how long work in the background rests.
type rest struct {
	// share is the length of a rest, as a share of the work before it.
	share float64
}

const (
	leastRest, mostRest = 0.05, 4
	// crowded is from how much more time than of the processor a work took that others wait for a processor.
	crowded = 1.25
)

func newRest() rest { return rest{share: 1} }

// after returns how long to rest after a work that took some time and used some of a processor: longer each time while
// others wait for a processor, shorter while none does.
func (r *rest) after(took, used time.Duration) time.Duration {
	if used <= 0 || float64(took) > crowded*float64(used) {
		r.share = min(mostRest, 2*r.share)
	} else {
		r.share = max(leastRest, r.share/2)
	}
	return time.Duration(r.share * float64(took))
}
