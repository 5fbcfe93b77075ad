package minilm

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/viterin/vek/vek32"

	"github.com/annals-project/annals/internal/quantized"
)

// The constants of the architecture, which the ONNX file has only in the wiring of its graph.
const (
	headSize   = 32
	normEps    = 1e-12
	embeddings = "embeddings."
)

// network holds the weights of a BERT encoder. It is read-only.
type network struct {
	hidden, inner, heads, vocab int
	words                       []byte // [vocab][hidden], uint8
	wordScale                   float32
	wordZero                    float32
	places                      []float32 // [maxTokens][hidden]: position plus token type 0
	norm                        layerNorm
	layers                      []layer
	cdf                         *normalCDF
}

type layer struct {
	attended, output *quantized.Matrix // the attention: queries, which are scaled, then keys, then values
	outputNorm       layerNorm
	up, down         *quantized.Matrix
	downNorm         layerNorm
}

type layerNorm struct {
	scale, bias []float32
}

// newNetwork builds the network from the tensors of the file. It reads the sizes from their shapes.
func newNetwork(g *graph) (*network, error) {
	n := &network{cdf: newNormalCDF()}
	if err := n.loadEmbeddings(g); err != nil {
		return nil, fmt.Errorf("load embeddings: %w", err)
	}
	for i := 0; ; i++ {
		if _, ok := g.matMuls[matMulNode(i, roleQuery)]; !ok {
			break
		}
		l, err := n.loadLayer(g, i)
		if err != nil {
			return nil, fmt.Errorf("load layer %d: %w", i, err)
		}
		n.layers = append(n.layers, l)
	}
	if len(n.layers)*6 != len(g.matMuls) || len(n.layers) == 0 {
		return nil, fmt.Errorf("load layers: %d layers and %d products", len(n.layers), len(g.matMuls))
	}
	return n, nil
}

func (n *network) loadEmbeddings(g *graph) error {
	words, err := loadTable(g, "word_embeddings", anyLength)
	if err != nil {
		return err
	}
	n.vocab, n.hidden = words.rows, words.columns
	if n.hidden%headSize != 0 {
		return fmt.Errorf("%d dimensions do not divide into heads of %d", n.hidden, headSize)
	}
	n.heads = n.hidden / headSize
	// A copy, so that the rest of the file can be freed.
	n.words, n.wordScale, n.wordZero = append([]byte(nil), words.values...), words.scale, words.zero
	positions, err := loadTable(g, "position_embeddings", n.hidden)
	if err != nil {
		return err
	}
	types, err := loadTable(g, "token_type_embeddings", n.hidden)
	if err != nil {
		return err
	}
	if positions.rows < maxTokens {
		return fmt.Errorf("%d positions, want at least %d", positions.rows, maxTokens)
	}
	n.places = make([]float32, maxTokens*n.hidden)
	for i := range n.places {
		n.places[i] = positions.at(i) + types.at(i%n.hidden)
	}
	n.norm, err = n.loadNorm(g, embeddings+"LayerNorm")
	return err
}

// table is a quantized table of embeddings.
type table struct {
	rows, columns int
	values        []byte
	scale, zero   float32
}

func (t table) at(i int) float32 { return (float32(t.values[i]) - t.zero) * t.scale }

func loadTable(g *graph, name string, columns int) (table, error) {
	name = embeddings + name + ".weight"
	values, err := g.bytes(name+"_quantized", typeUint8, anyLength, columns)
	if err != nil {
		return table{}, err
	}
	scale, err := g.floats(name + "_scale")
	if err != nil {
		return table{}, err
	}
	zero, err := g.bytes(name+"_zero_point", typeUint8)
	if err != nil {
		return table{}, err
	}
	dims := g.tensors[name+"_quantized"].dims
	return table{
		rows: int(dims[0]), columns: int(dims[1]), values: values, scale: scale[0], zero: float32(zero[0]),
	}, nil
}

func (n *network) loadNorm(g *graph, name string) (layerNorm, error) {
	scale, err := g.floats(name+".weight", n.hidden)
	if err != nil {
		return layerNorm{}, err
	}
	bias, err := g.floats(name+".bias", n.hidden)
	return layerNorm{scale: scale, bias: bias}, err
}

// The products of a layer, as the names of nodes and biases have them.
const (
	roleQuery  = "attention/self/query"
	roleKey    = "attention/self/key"
	roleValue  = "attention/self/value"
	roleOutput = "attention/output/dense"
	roleUp     = "intermediate/dense"
	roleDown   = "output/dense"
)

func matMulNode(layer int, role string) string {
	return fmt.Sprintf("/encoder/layer.%d/%s/MatMul_quant", layer, role)
}

func (n *network) loadLayer(g *graph, i int) (l layer, err error) {
	prefix := fmt.Sprintf("encoder.layer.%d.", i)
	query, err := loadDense(g, i, roleQuery, n.hidden, n.hidden)
	if err != nil {
		return l, err
	}
	scaleDense(query, float32(1/math.Sqrt(headSize)))
	key, err := loadDense(g, i, roleKey, n.hidden, n.hidden)
	if err != nil {
		return l, err
	}
	value, err := loadDense(g, i, roleValue, n.hidden, n.hidden)
	if err != nil {
		return l, err
	}
	l.attended = joinDense(query, key, value)
	if l.output, err = loadDense(g, i, roleOutput, n.hidden, n.hidden); err != nil {
		return l, err
	}
	if l.outputNorm, err = n.loadNorm(g, prefix+"attention.output.LayerNorm"); err != nil {
		return l, err
	}
	inner := n.inner
	if i == 0 {
		inner = anyLength
	}
	if l.up, err = loadDense(g, i, roleUp, n.hidden, inner); err != nil {
		return l, err
	}
	n.inner = l.up.Out
	if l.down, err = loadDense(g, i, roleDown, n.inner, n.hidden); err != nil {
		return l, err
	}
	l.downNorm, err = n.loadNorm(g, prefix+"output.LayerNorm")
	return l, err
}

// loadDense transposes the weights of one product, [in][out] in the file.
func loadDense(g *graph, layer int, role string, in, out int) (*quantized.Matrix, error) {
	inputs := g.matMuls[matMulNode(layer, role)]
	if len(inputs) != 4 {
		return nil, fmt.Errorf("%s has %d inputs, want 4", role, len(inputs))
	}
	name := inputs[1]
	values, err := g.bytes(name, typeInt8, in, out)
	if err != nil {
		return nil, err
	}
	t := g.tensors[name]
	if t.used {
		return nil, fmt.Errorf("tensor %q belongs to two products", name)
	}
	t.used, in, out = true, int(t.dims[0]), int(t.dims[1])
	if in > quantized.MaxIn {
		return nil, fmt.Errorf("%s has %d inputs of each output, want at most %d", role, in, quantized.MaxIn)
	}
	scale, err := g.floats(strings.TrimSuffix(name, "_quantized")+"_scale", out)
	if err != nil {
		return nil, err
	}
	zero, err := g.bytes(inputs[3], typeInt8, out)
	if err != nil {
		return nil, err
	}
	bias := fmt.Sprintf("encoder.layer.%d.%s.bias", layer, strings.ReplaceAll(role, "/", "."))
	if slices.ContainsFunc(zero, func(z byte) bool { return z != 0 }) {
		return nil, fmt.Errorf("tensor %q has a zero point other than 0", name)
	}
	d := &quantized.Matrix{In: in, Out: out, Codes: make([]int8, in*out), Scales: slices.Clone(scale)}
	if d.Biases, err = g.floats(bias, out); err != nil {
		return nil, err
	}
	for o := range out {
		for i := range in {
			d.Codes[o*in+i] = int8(values[i*out+o])
		}
	}
	return d, nil
}

func scaleDense(d *quantized.Matrix, by float32) {
	for o := range d.Out {
		d.Scales[o] *= by
		d.Biases[o] *= by
	}
}

// joinDense returns a map with the outputs of all parts.
func joinDense(parts ...*quantized.Matrix) *quantized.Matrix {
	d := &quantized.Matrix{In: parts[0].In}
	for _, p := range parts {
		d.Out += p.Out
		d.Codes, d.Scales = append(d.Codes, p.Codes...), append(d.Scales, p.Scales...)
		d.Biases = append(d.Biases, p.Biases...)
	}
	return d
}

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

// apply normalizes each row of x to mean 0 and variance 1, then scales and shifts it.
func (n layerNorm) apply(x []float32, width int) {
	for ; len(x) > 0; x = x[width:] {
		row := x[:width]
		vek32.SubNumber_Inplace(row, vek32.Sum(row)/float32(width))
		variance := float64(vek32.Dot(row, row)) / float64(width)
		vek32.MulNumber_Inplace(row, float32(1/math.Sqrt(variance+normEps)))
		vek32.Mul_Inplace(row, n.scale)
		vek32.Add_Inplace(row, n.bias)
	}
}

// minExponent bounds the arguments of the exponential: that of the library returns NaN for some
// numbers below -87, whose exponential is less than the normal numbers of float32.
const minExponent = -80

// softmax replaces scores by their softmax. There is at least one.
func softmax(scores []float32) {
	vek32.SubNumber_Inplace(scores, vek32.Max(scores))
	vek32.MaximumNumber_Inplace(scores, minExponent)
	vek32.Exp_Inplace(scores)
	vek32.MulNumber_Inplace(scores, 1/vek32.Sum(scores))
}

// cdfLimit is where the normal distribution is 1 in float32, and cdfStep the inverse distance of the
// entries of its table.
const (
	cdfLimit = 6
	cdfStep  = 128
)

// normalCDF is a table of the standard normal distribution function from -cdfLimit to cdfLimit.
type normalCDF [2*cdfLimit*cdfStep + 2]float32

func newNormalCDF() *normalCDF {
	var c normalCDF
	for i := range c {
		c[i] = float32(math.Erfc(-(float64(i)/cdfStep-cdfLimit)/math.Sqrt2) / 2)
	}
	return &c
}

// gelu replaces each number by itself times the normal distribution function of it, which is GELU
// with erf. It interpolates: the error is less than 1e-5.
func (c *normalCDF) gelu(x []float32) {
	for i, v := range x {
		switch {
		case v >= cdfLimit:
		case v > -cdfLimit:
			at := (v + cdfLimit) * cdfStep
			k := int(at)
			low := c[k]
			x[i] = v * (low + (c[k+1]-low)*(at-float32(k)))
		default:
			x[i] = 0
		}
	}
}
