package minilm

import (
	"fmt"
	"math"
	"slices"
	"strings"

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
