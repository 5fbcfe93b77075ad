package minilm

import (
	"context"

	"github.com/viterin/vek/vek32"

	"github.com/annals-project/annals/internal/quantized"
)

// buffers is the working memory of one text of up to maxTokens tokens.
type buffers struct {
	ids      []int32
	x        []float32 // [tokens][hidden]: the activations between layers
	sum      []float32 // [tokens][hidden]
	attended []float32 // [tokens][3*hidden]: queries, keys and values
	keys     []float32 // [tokens][headSize] of one head
	values   []float32 // [headSize][padded tokens] of one head
	context  []float32 // [tokens][hidden]
	inner    []float32 // [tokens][inner]
	scores   []float32 // [padded tokens]
	rows     quantized.Rows
}

func newBuffers(n *network) *buffers {
	size := maxTokens * n.hidden
	return &buffers{
		ids: make([]int32, 0, maxTokens), x: make([]float32, size), sum: make([]float32, size),
		attended: make([]float32, 3*size), context: make([]float32, size),
		keys: make([]float32, maxTokens*headSize), values: make([]float32, maxTokens*headSize),
		inner: make([]float32, maxTokens*n.inner), scores: make([]float32, maxTokens),
	}
}

// multiply writes the outputs for each row of x to dst.
func (b *buffers) multiply(m *quantized.Matrix, dst, x []float32) {
	b.rows.Round(x, m.In)
	m.Multiply(dst, b.rows)
}

// embed writes the vector of the tokens b.ids to dst. There are at least one and at most maxTokens.
func (n *network) embed(ctx context.Context, dst []float32, b *buffers) error {
	tokens := len(b.ids)
	x, sum := b.x[:tokens*n.hidden], b.sum[:tokens*n.hidden]
	n.lookup(x, b.ids)
	n.norm.apply(x, n.hidden)
	for i := range n.layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		l := &n.layers[i]
		n.attend(l, b, tokens)
		b.multiply(l.output, sum, b.context[:len(x)])
		vek32.Add_Inplace(x, sum)
		l.outputNorm.apply(x, n.hidden)

		inner := b.inner[:tokens*n.inner]
		b.multiply(l.up, inner, x)
		n.cdf.gelu(inner)
		b.multiply(l.down, sum, inner)
		vek32.Add_Inplace(x, sum)
		l.downNorm.apply(x, n.hidden)
	}
	pool(dst, x)
	return ctx.Err()
}

// lookup writes the sum of the three embeddings of each token.
func (n *network) lookup(x []float32, ids []int32) {
	for t, id := range ids {
		row := x[t*n.hidden : (t+1)*n.hidden]
		word := n.words[int(id)*n.hidden:]
		place := n.places[t*n.hidden:]
		for i := range row {
			row[i] = (float32(word[i])-n.wordZero)*n.wordScale + place[i]
		}
	}
}

// attend writes the attention of all heads to b.context.
func (n *network) attend(l *layer, b *buffers, tokens int) {
	x, attended := b.x[:tokens*n.hidden], b.attended[:3*tokens*n.hidden]
	b.multiply(l.attended, attended, x)
	// Products of a multiple of 32 numbers avoid a slow remainder loop.
	padded := (tokens + 31) &^ 31
	keys, values, scores := b.keys[:tokens*headSize], b.values[:headSize*padded], b.scores[:padded]
	clear(values)
	clear(scores)
	for h := range n.heads {
		row := func(t, kind int) []float32 {
			return attended[(3*t+kind)*n.hidden+h*headSize:][:headSize]
		}
		for t := range tokens {
			copy(keys[t*headSize:], row(t, 1))
			for i, v := range row(t, 2) {
				values[i*padded+t] = v
			}
		}
		for t := range tokens {
			vek32.MatMul_Into(scores[:tokens], keys, row(t, 0), headSize)
			softmax(scores[:tokens])
			vek32.MatMul_Into(b.context[t*n.hidden+h*headSize:][:headSize], values, scores, padded)
		}
	}
}

// pool writes the mean of the rows of x, scaled to unit length.
func pool(dst, x []float32) {
	clear(dst)
	for ; len(x) > 0; x = x[len(dst):] {
		vek32.Add_Inplace(dst, x[:len(dst)])
	}
	if length := vek32.Norm(dst); length > 0 {
		vek32.MulNumber_Inplace(dst, 1/length)
	}
}
