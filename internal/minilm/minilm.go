package minilm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
)

// Dims is the length of a vector.
const Dims = 384

// maxTokens is the most tokens that are read of one text, [CLS] and [SEP] included: the
// max_seq_length of sentence-transformers for this model. The rest of a longer text is ignored.
const maxTokens = 256

// A text has something in common with a question from a cosine that grows with the number of vectors, since the nearest
// of more is nearer by chance: fast up to about ten, then slowly, and not above leastOfMany. So nine of ten questions
// about what is not there get nothing in stores of 3 to 30,000 texts. TestLeastCosine_Absent and
// TestLeastCosine_Dialogues in commands/pipeline measure it.
const (
	leastOfOne, growthOfFew   = 0.135, 0.055 // for each e-fold number of vectors
	leastOfSome, growthOfSome = 0.21, 0.0222
	leastOfMany               = 0.385
)

// LeastCosine returns the cosine from which the nearest of some vectors has something in common with a question, and is
// not near by chance.
func LeastCosine(vectors int) float64 {
	folds := math.Log(float64(max(1, vectors)))
	return min(leastOfOne+growthOfFew*folds, leastOfSome+growthOfSome*folds, leastOfMany)
}

// Model is a loaded encoder. It is read-only after Open and safe for concurrent use. It holds about
// 27 MB: 11 MB of weights and 12 MB of embeddings, one byte each, and the vocabulary. Each Embed in
// progress adds 5 MB of buffers, which are reused. Open needs another 25 MB while it runs.
type Model struct {
	name string
	tok  *tokenizer
	net  *network
	pool sync.Pool
}

// Open loads the model from dir/model.onnx and dir/tokenizer.json, which Install writes. It takes a
// few hundred milliseconds. errors.Is(err, fs.ErrNotExist) holds if one of the files is missing. A
// file whose size or SHA-256 differs from the published one is an error.
func Open(dir string) (*Model, error) {
	return open(dir, published())
}

func open(dir string, want release) (*Model, error) {
	onnx, err := readInstalled(dir, want.model)
	if err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	}
	vocabulary, err := readInstalled(dir, want.tokenizer)
	if err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	}
	return load(onnx, vocabulary, want)
}

// OpenSource loads the model from what Install takes, without installing it. The files must be the published ones.
func OpenSource(ctx context.Context, source string) (*Model, error) {
	return openSource(ctx, source, published())
}

func openSource(ctx context.Context, source string, want release) (*Model, error) {
	onnx, vocabulary, err := readSource(ctx, source, want)
	if err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	}
	return load(onnx, vocabulary, want)
}

// load makes the model of its verified files.
func load(onnx, vocabulary []byte, want release) (*Model, error) {
	m, err := newModel(onnx, vocabulary)
	if err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	}
	if m.net.hidden != Dims {
		return nil, fmt.Errorf("open model: vectors have %d dimensions, want %d", m.net.hidden, Dims)
	}
	m.name = modelName + "@" + want.model.sha256[:12]
	return m, nil
}

// newModel builds a model of any size from the content of its two files.
func newModel(onnx, vocabulary []byte) (*Model, error) {
	g, err := parseONNX(onnx)
	if err != nil {
		return nil, err
	}
	net, err := newNetwork(g)
	if err != nil {
		return nil, err
	}
	tok, err := parseTokenizer(vocabulary)
	if err != nil {
		return nil, err
	}
	if int(tok.maxID) >= net.vocab {
		return nil, fmt.Errorf("token id %d has no embedding: the model has %d", tok.maxID, net.vocab)
	}
	m := &Model{tok: tok, net: net}
	m.pool.New = func() any { return newBuffers(net) }
	return m, nil
}

// Name identifies the model and the exact weights: vectors of different names must not be compared.
func (m *Model) Name() string { return m.name }

// IsName reports whether a name is that of a version of this model.
func IsName(name string) bool { return strings.HasPrefix(name, modelName+"@") }

// Embed returns the vector of a text: Dims long and of unit length. A text without any token, such
// as the empty one, has a vector too. Only the first 256 tokens count, and of these only what is in
// the first 256 KiB of the text; bytes that are not UTF-8 are skipped. Embed runs on the calling
// goroutine: on one core with AVX2 it takes about 4 ms for 12 tokens, 9 ms for 32 and 38 ms for 128.
// Without AVX2 it is several times slower. It checks ctx between layers and returns its error.
func (m *Model) Embed(ctx context.Context, text string) ([]float32, error) {
	buf, ok := m.pool.Get().(*buffers)
	if !ok {
		return nil, errors.New("embed: the buffer pool is not set up")
	}
	defer m.pool.Put(buf)
	buf.ids = m.tok.encode(buf.ids[:0], text)
	vector := make([]float32, m.net.hidden)
	if err := m.net.embed(ctx, vector, buf); err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	return vector, nil
}
