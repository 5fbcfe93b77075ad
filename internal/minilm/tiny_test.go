package minilm

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

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
