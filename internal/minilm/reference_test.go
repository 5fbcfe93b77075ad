package minilm

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/annals-project/annals/internal/runtest"
)

// openModel opens the model in the folder ANNALS_TEST_MODEL, or skips the test.
func openModel(t testing.TB) *Model {
	t.Helper()
	dir := os.Getenv("ANNALS_TEST_MODEL")
	if dir == "" {
		t.Skip("set ANNALS_TEST_MODEL to a folder with the installed model")
	}
	m, err := Open(dir)
	runtest.Must(t, err)
	return m
}

// reference is testdata/reference.json.
type reference struct {
	Tokens []struct {
		Text string  `json:"text"`
		IDs  []int32 `json:"ids"`
	} `json:"tokens"`
	Vectors []struct {
		Text    string    `json:"text"`
		Tokens  int       `json:"tokens"`
		Cosines []float32 `json:"cosines"`
		Exact   []float32 `json:"exact"`
		ONNX    []float32 `json:"onnx"`
	} `json:"vectors"`
}

func loadReference(t *testing.T) reference {
	t.Helper()
	data, err := os.ReadFile("testdata/reference.json")
	runtest.Must(t, err)
	var r reference
	runtest.Must(t, json.Unmarshal(data, &r))
	return r
}

func TestTokenizer_SameIDsAsReference(t *testing.T) {
	m := openModel(t)
	for _, want := range loadReference(t).Tokens {
		if got := m.tok.encode(nil, want.Text); !slices.Equal(got, want.IDs) {
			t.Errorf("%q:\n got %d\nwant %d", want.Text, got, want.IDs)
		}
	}
}

func TestEmbed_CloseToReference(t *testing.T) {
	m := openModel(t)
	if m.Name() != "all-MiniLM-L6-v2-q@afdb6f1a0e45" {
		t.Errorf("name %q", m.Name())
	}
	wants := loadReference(t).Vectors
	vectors := make([][]float32, len(wants))
	for i, want := range wants {
		if n := len(m.tok.encode(nil, want.Text)); n != want.Tokens {
			t.Errorf("%.40q: %d tokens, want %d", want.Text, n, want.Tokens)
		}
		v := mustEmbed(t, m, want.Text)
		vectors[i] = v
		if len(v) != Dims || math.Abs(dot(v, v)-1) > 1e-5 {
			t.Errorf("%.40q: %d dimensions, square of length %f", want.Text, len(v), dot(v, v))
		}
		for k, x := range want.Exact {
			if diff := math.Abs(float64(x - v[k])); diff > 1e-4 {
				t.Errorf("%.40q: dimension %d is %f, want %f", want.Text, k, v[k], x)
			}
		}
		if want.ONNX != nil {
			c := cosine(v, want.ONNX)
			t.Logf("%.40q: cosine %.5f to onnxruntime", want.Text, c)
			if c < 0.99 {
				t.Errorf("%.40q: cosine %f to onnxruntime", want.Text, c)
			}
		}
	}
	for i, want := range wants {
		for j, c := range want.Cosines {
			if got := cosine(vectors[i], vectors[j]); math.Abs(float64(got-c)) > 0.03 {
				t.Errorf("cosine of %.40q and %.40q is %f, want %f", want.Text, wants[j].Text, got, c)
			}
		}
	}
}

// Concurrent calls must not share buffers, and a call must not depend on the one before.
func TestEmbed_Concurrent(t *testing.T) {
	m := openModel(t)
	texts := []string{"short", strings.Repeat("a longer text about ships ", 9), "middle sized text, with a comma"}
	wants := make([][]float32, len(texts))
	for i, text := range texts {
		wants[i] = mustEmbed(t, m, text)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, text := range texts {
				if v, err := m.Embed(context.Background(), text); err != nil || !slices.Equal(v, wants[i]) {
					t.Errorf("%.20q: another vector, error %v", text, err)
				}
			}
		})
	}
	wg.Wait()
}

func mustEmbed(t *testing.T, m *Model, text string) []float32 {
	t.Helper()
	v, err := m.Embed(t.Context(), text)
	runtest.Must(t, err)
	return v
}

func cosine(a, b []float32) float32 {
	return float32(dot(a, b) / math.Sqrt(dot(a, a)*dot(b, b)))
}

func dot(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// tinyONNX builds a model file like the real one, but small: it is the same for the same sizes.
type tinyONNX struct {
	hidden, inner, layers int
	random                *rand.Rand
	tensors               []tinyTensor
	nodes                 []tinyNode
}

type tinyTensor struct {
	name   string
	typ    uint64
	dims   []int
	raw    []byte
	floats []float32 // packed
	ints   []int8    // packed
}

type tinyNode struct {
	name, op string
	inputs   []string
}

func newTinyONNX(hidden, inner, layers int) *tinyONNX {
	f := &tinyONNX{hidden: hidden, inner: inner, layers: layers, random: rand.New(rand.NewPCG(1, 2))}
	for name, rows := range map[string]int{"word": len(vocabulary), "position": maxTokens + 2, "token_type": 2} {
		name = "embeddings." + name + "_embeddings.weight"
		f.add(tinyTensor{name: name + "_quantized", typ: typeUint8, dims: []int{rows, hidden}, raw: f.bytes(rows * hidden)})
		f.add(tinyTensor{name: name + "_scale", typ: typeFloat, floats: []float32{0.01}})
		f.add(tinyTensor{name: name + "_zero_point", typ: typeUint8, ints: []int8{127}})
	}
	f.addNorm("embeddings.LayerNorm")
	number := 700
	for i := range layers {
		for _, role := range []string{roleQuery, roleKey, roleValue, roleOutput, roleUp, roleDown} {
			in, out := hidden, hidden
			switch role {
			case roleUp:
				out = inner
			case roleDown:
				in = inner
			}
			number++
			f.addDense(i, number, role, in, out)
		}
		f.addNorm(fmt.Sprintf("encoder.layer.%d.attention.output.LayerNorm", i))
		f.addNorm(fmt.Sprintf("encoder.layer.%d.output.LayerNorm", i))
	}
	f.nodes = append(f.nodes, tinyNode{"/pooler", "MatMul", []string{"a", "b"}})
	return f
}

func (f *tinyONNX) add(t tinyTensor) { f.tensors = append(f.tensors, t) }

func (f *tinyONNX) addNorm(name string) {
	f.add(tinyTensor{name: name + ".weight", typ: typeFloat, dims: []int{f.hidden}, raw: f.rawFloats(f.hidden)})
	f.add(tinyTensor{name: name + ".bias", typ: typeFloat, dims: []int{f.hidden}, raw: f.rawFloats(f.hidden)})
}

func (f *tinyONNX) addDense(layer, number int, role string, in, out int) {
	name := fmt.Sprintf("onnx::MatMul_%d", number)
	scale, zero := make([]float32, out), make([]int8, out)
	for o := range out {
		scale[o] = 0.001 * (1 + f.random.Float32())
	}
	bias := fmt.Sprintf("encoder.layer.%d.%s.bias", layer, strings.ReplaceAll(role, "/", "."))
	f.add(tinyTensor{name: name + "_quantized", typ: typeInt8, dims: []int{in, out}, raw: f.bytes(in * out)})
	f.add(tinyTensor{name: name + "_scale", typ: typeFloat, dims: []int{out}, floats: scale})
	f.add(tinyTensor{name: name + "_zero_point", typ: typeInt8, dims: []int{out}, ints: zero})
	f.add(tinyTensor{name: bias, typ: typeFloat, dims: []int{out}, raw: f.rawFloats(out)})
	f.nodes = append(f.nodes, tinyNode{
		matMulNode(layer, role), "MatMulInteger", []string{"x", name + "_quantized", "x_zero_point", name + "_zero_point"},
	})
}

func (f *tinyONNX) bytes(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(f.random.Uint32())
	}
	return data
}

func (f *tinyONNX) rawFloats(n int) (data []byte) {
	for range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(f.random.Float32()*2-1))
	}
	return data
}

// tensor returns the tensor of a name, to be changed.
func (f *tinyONNX) tensor(name string) *tinyTensor {
	for i := range f.tensors {
		if f.tensors[i].name == name {
			return &f.tensors[i]
		}
	}
	return &tinyTensor{}
}

// encode returns the file.
func (f *tinyONNX) encode() []byte {
	var graph []byte
	for _, n := range f.nodes {
		var node []byte
		for _, input := range n.inputs {
			node = appendBytes(node, nodeInput, []byte(input))
		}
		node = appendBytes(node, nodeName, []byte(n.name))
		node = appendBytes(node, nodeOp, []byte(n.op))
		graph = appendBytes(graph, graphNode, node)
	}
	for _, t := range f.tensors {
		graph = appendBytes(graph, graphInitializer, t.encode())
	}
	version := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 6)
	return appendBytes(version, modelGraph, graph)
}

func (t *tinyTensor) encode() (b []byte) {
	for _, d := range t.dims {
		b = protowire.AppendVarint(protowire.AppendTag(b, tensorDims, protowire.VarintType), uint64(d))
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, tensorType, protowire.VarintType), t.typ)
	b = appendBytes(b, tensorName, []byte(t.name))
	var packed []byte
	for _, v := range t.floats {
		packed = protowire.AppendFixed32(packed, math.Float32bits(v))
	}
	if len(packed) > 0 {
		b = appendBytes(b, tensorFloats, packed)
	}
	packed = nil
	for _, v := range t.ints {
		packed = protowire.AppendVarint(packed, uint64(int64(v)))
	}
	if len(packed) > 0 {
		b = appendBytes(b, tensorInts, packed)
	}
	if len(t.raw) > 0 {
		b = appendBytes(b, tensorRaw, t.raw)
	}
	return b
}

func appendBytes(b []byte, num protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), data)
}

// The least cosine grows with the number of vectors, up to a bound.
func TestLeastCosine(t *testing.T) {
	for n, want := range map[int]float64{
		-1: 0.135, 0: 0.135, 1: 0.135, 3: 0.195, 10: 0.261, 1000: 0.363, 1_000_000: 0.385,
	} {
		if got := LeastCosine(n); got < want-0.001 || got > want+0.001 {
			t.Errorf("%d vectors: %v, want %v", n, got, want)
		}
	}
}

func BenchmarkEmbed(b *testing.B) {
	m := openModel(b)
	for _, tokens := range []int{12, 32, 128, 256} {
		text := strings.Repeat("harbor ", tokens-2)
		if n := len(m.tok.encode(nil, text)); n != tokens {
			b.Fatalf("%d tokens, want %d", n, tokens)
		}
		b.Run(fmt.Sprintf("tokens=%d", tokens), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Embed(b.Context(), text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
