package minilm

import (
	"context"

	"github.com/viterin/vek/vek32"
)

// buffers is the working memory of one text of up to maxTokens tokens.
type buffers struct {
	ids      []int32
	x        []float32 // [tokens][hidden]: the activations between layers
	sum      []float32 // [tokens][hidden]
	queryKey []float32 // [tokens][2*hidden]
	keys     []float32 // [heads][tokens][headSize]
	values   []float32 // [hidden][padded tokens]
	context  []float32 // [tokens][hidden]
	inner    []float32 // [tokens][inner]
	scores   []float32 // [padded tokens]
	split    split     // of the products of this text
}

func newBuffers(n *network) *buffers {
	size := maxTokens * n.hidden
	return &buffers{
		ids: make([]int32, 0, maxTokens), x: make([]float32, size), sum: make([]float32, size),
		queryKey: make([]float32, 2*size), keys: make([]float32, size), values: make([]float32, size),
		context: make([]float32, size), inner: make([]float32, maxTokens*n.inner), scores: make([]float32, maxTokens),
	}
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
		if err := n.attend(l, b, tokens); err != nil {
			return err
		}
		if err := l.output.apply(sum, b.context[:len(x)], tokens, b.split); err != nil {
			return err
		}
		vek32.Add_Inplace(x, sum)
		l.outputNorm.apply(x, n.hidden)

		inner := b.inner[:tokens*n.inner]
		if err := l.up.apply(inner, x, tokens, b.split); err != nil {
			return err
		}
		n.cdf.gelu(inner)
		if err := l.down.apply(sum, inner, tokens, b.split); err != nil {
			return err
		}
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
func (n *network) attend(l *layer, b *buffers, tokens int) error {
	x := b.x[:tokens*n.hidden]
	queryKey := b.queryKey[:2*len(x)]
	if err := l.queryKey.apply(queryKey, x, tokens, b.split); err != nil {
		return err
	}
	// Products of a multiple of 32 numbers avoid a slow remainder loop.
	padded := (tokens + 31) &^ 31
	values := b.values[:n.hidden*padded]
	if err := l.value.applyTransposed(values, x, tokens, padded, b.split); err != nil {
		return err
	}
	scores := b.scores[:padded]
	clear(scores)
	for h := range n.heads {
		keys := b.keys[:tokens*headSize]
		for t := range tokens {
			at := t*2*n.hidden + n.hidden + h*headSize
			copy(keys[t*headSize:(t+1)*headSize], queryKey[at:])
		}
		values := values[h*headSize*padded : (h+1)*headSize*padded]
		for t := range tokens {
			query := queryKey[t*2*n.hidden+h*headSize:][:headSize]
			vek32.MatMul_Into(scores[:tokens], keys, query, headSize)
			softmax(scores[:tokens])
			vek32.MatMul_Into(b.context[t*n.hidden+h*headSize:][:headSize], values, scores, padded)
		}
	}
	return nil
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
