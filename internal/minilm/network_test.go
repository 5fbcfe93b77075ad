package minilm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/annals-project/annals/internal/quantized"
	"github.com/annals-project/annals/internal/runtest"
)

func tinyModel(t testing.TB, f *tinyONNX) *Model {
	t.Helper()
	m, err := newModel(f.encode(), tokenizerJSON(vocabulary))
	runtest.Must(t, err)
	return m
}

func TestEmbed_SameAsPlainLoops(t *testing.T) {
	for _, size := range []struct{ hidden, inner, layers int }{{32, 40, 1}, {64, 96, 2}} {
		f := newTinyONNX(size.hidden, size.inner, size.layers)
		m := tinyModel(t, f)
		for _, text := range []string{"", "run", "unaffable, running!", strings.Repeat("cafe ", 31), strings.Repeat("run ", 500)} {
			got := mustEmbed(t, m, text)
			want := f.plain(t, m.tok.encode(nil, text))
			for i := range want {
				expectNear(t, fmt.Sprintf("hidden %d, %.20q", size.hidden, text), got[i], want[i], 1e-4)
			}
		}
	}
}

// plain computes a vector from the content of the file with loops over float64.
func (f *tinyONNX) plain(t *testing.T, ids []int32) []float64 {
	t.Helper()
	embedding := func(table string, row, i int) float64 {
		return (float64(f.tensor("embeddings." + table + "_embeddings.weight_quantized").raw[row*f.hidden+i]) - 127) * 0.01
	}
	x := make([][]float64, len(ids))
	for at, id := range ids {
		for i := range f.hidden {
			x[at] = append(x[at], embedding("word", int(id), i)+embedding("position", at, i)+embedding("token_type", 0, i))
		}
	}
	x = f.plainNorm(x, "embeddings.LayerNorm")
	for l := range f.layers {
		query, key := f.plainDense(x, l, roleQuery), f.plainDense(x, l, roleKey)
		attended := plainAttention(query, key, f.plainDense(x, l, roleValue))
		x = plainAdd(x, f.plainDense(attended, l, roleOutput))
		x = f.plainNorm(x, fmt.Sprintf("encoder.layer.%d.attention.output.LayerNorm", l))
		inner := f.plainDense(x, l, roleUp)
		for _, row := range inner {
			for i, v := range row {
				row[i] = v / 2 * (1 + math.Erf(v/math.Sqrt2))
			}
		}
		x = plainAdd(x, f.plainDense(inner, l, roleDown))
		x = f.plainNorm(x, fmt.Sprintf("encoder.layer.%d.output.LayerNorm", l))
	}
	mean, length := make([]float64, f.hidden), 0.0
	for i := range mean {
		for _, row := range x {
			mean[i] += row[i]
		}
		length += mean[i] * mean[i]
	}
	for i := range mean {
		mean[i] /= math.Sqrt(length)
	}
	return mean
}

func (f *tinyONNX) plainDense(x [][]float64, layer int, role string) [][]float64 {
	i := slices.IndexFunc(f.nodes, func(n tinyNode) bool { return n.name == matMulNode(layer, role) })
	name := strings.TrimSuffix(f.nodes[i].inputs[1], "_quantized")
	weights, scale, zero := f.tensor(name+"_quantized"), f.tensor(name+"_scale"), f.tensor(name+"_zero_point")
	bias := appendFloats(nil, f.tensor(fmt.Sprintf("encoder.layer.%d.%s.bias", layer, strings.ReplaceAll(role, "/", "."))).raw)
	out := make([][]float64, len(x))
	for at, row := range x {
		for o := range bias {
			sum := float64(bias[o])
			for i, v := range row {
				sum += v * float64(int(int8(weights.raw[i*len(bias)+o]))-int(zero.ints[o])) * float64(scale.floats[o])
			}
			out[at] = append(out[at], sum)
		}
	}
	return out
}

func (f *tinyONNX) plainNorm(x [][]float64, name string) [][]float64 {
	scale, bias := appendFloats(nil, f.tensor(name+".weight").raw), appendFloats(nil, f.tensor(name+".bias").raw)
	for _, row := range x {
		mean, variance := 0.0, 0.0
		for _, v := range row {
			mean += v / float64(len(row))
		}
		for _, v := range row {
			variance += (v - mean) * (v - mean) / float64(len(row))
		}
		for i, v := range row {
			row[i] = (v-mean)/math.Sqrt(variance+normEps)*float64(scale[i]) + float64(bias[i])
		}
	}
	return x
}

func plainAttention(query, key, value [][]float64) [][]float64 {
	out := make([][]float64, len(query))
	for at := range query {
		out[at] = make([]float64, len(query[at]))
		for h := 0; h < len(query[at]); h += headSize {
			weights, sum := make([]float64, len(key)), 0.0
			for to := range key {
				score := 0.0
				for i := h; i < h+headSize; i++ {
					score += query[at][i] * key[to][i]
				}
				weights[to] = math.Exp(score / math.Sqrt(headSize))
				sum += weights[to]
			}
			for to := range key {
				for i := h; i < h+headSize; i++ {
					out[at][i] += weights[to] / sum * value[to][i]
				}
			}
		}
	}
	return out
}

func plainAdd(x, y [][]float64) [][]float64 {
	for at := range x {
		for i := range x[at] {
			x[at][i] += y[at][i]
		}
	}
	return x
}

func TestEmbed_CanceledContext(t *testing.T) {
	m := tinyModel(t, newTinyONNX(32, 32, 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := m.Embed(ctx, "run"); !errors.Is(err, context.Canceled) || v != nil {
		t.Errorf("got %v, %v", v, err)
	}
}

func TestNewModel_MalformedFile(t *testing.T) {
	const weights = "onnx::MatMul_701_quantized"
	for name, change := range map[string]func(f *tinyONNX){
		"missing tensor":     func(f *tinyONNX) { f.tensor(weights).name = "other" },
		"missing bias":       func(f *tinyONNX) { f.tensor("encoder.layer.1.output.dense.bias").name = "other" },
		"missing norm":       func(f *tinyONNX) { f.tensor("embeddings.LayerNorm.bias").name = "other" },
		"other type":         func(f *tinyONNX) { f.tensor(weights).typ = typeUint8 },
		"other shape":        func(f *tinyONNX) { f.tensor(weights).dims = []int{f.hidden * f.hidden} },
		"transposed":         func(f *tinyONNX) { f.tensor("onnx::MatMul_705_quantized").dims = []int{f.inner, f.hidden} },
		"data cut":           func(f *tinyONNX) { w := f.tensor(weights); w.raw = w.raw[1:] },
		"no data":            func(f *tinyONNX) { f.tensor(weights).raw = nil },
		"floats cut":         func(f *tinyONNX) { b := f.tensor("embeddings.LayerNorm.bias"); b.raw = b.raw[1:] },
		"negative dimension": func(f *tinyONNX) { f.tensor("embeddings.word_embeddings.weight_quantized").dims[0] = -1 },
		"product overflows":  func(f *tinyONNX) { f.tensor("embeddings.word_embeddings.weight_quantized").dims[0] = 1 << 62 },
		"empty table":        func(f *tinyONNX) { f.tensor("embeddings.word_embeddings.weight_quantized").dims[0] = 0 },
		"scale is a vector":  func(f *tinyONNX) { f.tensor("embeddings.word_embeddings.weight_scale").dims = []int{1} },
		"fewer tokens than ids": func(f *tinyONNX) {
			w := f.tensor("embeddings.word_embeddings.weight_quantized")
			w.dims[0], w.raw = 2, w.raw[:2*f.hidden]
		},
		"few positions": func(f *tinyONNX) {
			w := f.tensor("embeddings.position_embeddings.weight_quantized")
			w.dims[0], w.raw = 9, w.raw[:9*f.hidden]
		},
		"node with few inputs":     func(f *tinyONNX) { f.nodes[3].inputs = f.nodes[3].inputs[:2] },
		"node of another name":     func(f *tinyONNX) { f.nodes[3].name = "/other" },
		"node too many":            func(f *tinyONNX) { f.nodes[len(f.nodes)-1].op = "MatMulInteger" },
		"zero point of a weight":   func(f *tinyONNX) { f.tensor("onnx::MatMul_703_zero_point").ints[5] = 1 },
		"no nodes":                 func(f *tinyONNX) { f.nodes = nil },
		"weights of two products":  func(f *tinyONNX) { f.nodes[1].inputs = f.nodes[0].inputs },
		"inner size of next layer": func(f *tinyONNX) { f.nodes[10].inputs[1] = "onnx::MatMul_707_quantized" },
	} {
		f := newTinyONNX(64, 96, 2)
		change(f)
		if _, err := newModel(f.encode(), tokenizerJSON(vocabulary)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := newModel(newTinyONNX(40, 96, 1).encode(), tokenizerJSON(vocabulary)); err == nil {
		t.Error("40 dimensions do not divide into heads, but were accepted")
	}
}

func TestParseONNX_MalformedWire(t *testing.T) {
	valid := newTinyONNX(32, 32, 1).encode()
	inGraph := func(num protowire.Number, data []byte) []byte {
		return appendBytes(nil, modelGraph, appendBytes(nil, num, data))
	}
	for name, data := range map[string][]byte{
		"empty":            nil,
		"no graph":         {0x08, 0x06},
		"cut":              valid[:len(valid)-1],
		"cut in a tag":     {0xff},
		"length too large": {0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"cut node":         inGraph(graphNode, []byte{0x0a, 0x05}),
		"cut tensor":       inGraph(graphInitializer, []byte{0x4a, 0x05}),
		"cut dims":         inGraph(graphInitializer, appendBytes(nil, tensorDims, []byte{0xff})),
		"cut floats":       inGraph(graphInitializer, appendBytes(nil, tensorFloats, []byte{1, 2, 3})),
		"dims as fixed32":  inGraph(graphInitializer, protowire.AppendFixed32(protowire.AppendTag(nil, tensorDims, protowire.Fixed32Type), 1)),
		"floats as varint": inGraph(graphInitializer, protowire.AppendVarint(protowire.AppendTag(nil, tensorFloats, protowire.VarintType), 1)),
	} {
		if _, err := parseONNX(data); !errors.Is(err, errONNX) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func FuzzONNX(f *testing.F) {
	f.Add(newTinyONNX(32, 32, 1).encode())
	f.Add(newTinyONNX(32, 64, 2).encode()[:4000])
	f.Add([]byte{0x3a, 0x02, 0x2a, 0x00})
	vocab := tokenizerJSON(vocabulary)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := newModel(data, vocab)
		if err != nil {
			return
		}
		floats := len(m.net.places)
		for _, l := range m.net.layers {
			for _, d := range []*quantized.Matrix{l.attended, l.output, l.up, l.down} {
				floats += len(d.Codes) + len(d.Biases)
			}
		}
		if floats > len(data) {
			t.Fatalf("%d numbers from %d bytes", floats, len(data))
		}
		if _, err := m.Embed(t.Context(), "unaffable, running!"); err != nil {
			t.Fatal(err)
		}
	})
}

// numbers returns n numbers from -1 to 1, the same for the same seed.
func numbers(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = 2*r.Float32() - 1
	}
	return x
}

func TestLayerNorm_SameAsPlainLoops(t *testing.T) {
	const width = 96
	n := layerNorm{scale: numbers(width, 1), bias: numbers(width, 2)}
	x := append(numbers(2*width, 3), make([]float32, width)...) // the last row has no variance
	before := append([]float32(nil), x...)
	n.apply(x, width)
	for r := range 3 {
		row, mean, variance := before[r*width:(r+1)*width], 0.0, 0.0
		for _, v := range row {
			mean += float64(v) / width
		}
		for _, v := range row {
			variance += (float64(v) - mean) * (float64(v) - mean) / width
		}
		for i, v := range row {
			want := (float64(v)-mean)/math.Sqrt(variance+normEps)*float64(n.scale[i]) + float64(n.bias[i])
			expectNear(t, "layer norm", x[r*width+i], want, 1e-5)
		}
	}
}

func TestSoftmax_SameAsPlainLoops(t *testing.T) {
	// Wide ranges cover the arguments for which the exponential of the library fails.
	for _, span := range []float32{0, 1, 30, 100, 1e4, 1e30} {
		for n := 1; n <= 70; n++ {
			scores := numbers(n, uint64(n))
			sum, top := 0.0, math.Inf(-1)
			for i := range scores {
				scores[i] *= span
				top = max(top, float64(scores[i]))
			}
			wants := make([]float64, n)
			for i, v := range scores {
				wants[i] = math.Exp(float64(v) - top)
				sum += wants[i]
			}
			softmax(scores)
			for i, v := range scores {
				expectNear(t, "softmax", v, wants[i]/sum, 1e-6)
			}
		}
	}
}

func TestGELU_CloseToErf(t *testing.T) {
	c := newNormalCDF()
	var x []float32
	for v := float32(-8); v <= 8; v += 1.0 / 1999 {
		x = append(x, v)
	}
	x = append(x, 0, cdfLimit, -cdfLimit, math.Nextafter32(cdfLimit, 0), math.Nextafter32(-cdfLimit, 0),
		math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)))
	before := append([]float32(nil), x...)
	c.gelu(x)
	for i, v := range before {
		want := float64(v) / 2 * (1 + math.Erf(float64(v)/math.Sqrt2))
		if math.IsInf(want, 0) && math.IsInf(float64(x[i]), 1) {
			continue
		}
		expectNear(t, "gelu", x[i], want, 1e-5)
	}
}

func TestPool_UnitLength(t *testing.T) {
	dst := numbers(3, 1)
	pool(dst, []float32{3, 0, 1, 3, 8, -1})
	for i, want := range []float64{0.6, 0.8, 0} {
		expectNear(t, "pool", dst[i], want, 1e-6)
	}
	pool(dst, make([]float32, 6))
	for _, v := range dst {
		expectNear(t, "pool of zeros", v, 0, 0)
	}
}

func expectNear(t *testing.T, what string, got float32, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(float64(got)-want) <= tolerance) {
		t.Fatalf("%s: got %g, want %g", what, got, want)
	}
}
