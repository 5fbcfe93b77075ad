package minilm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of onnx.proto that are read.
const (
	modelGraph       = 7
	graphNode        = 1
	graphInitializer = 5
	nodeInput        = 1
	nodeName         = 3
	nodeOp           = 4
	tensorDims       = 1
	tensorType       = 2
	tensorFloats     = 4
	tensorInts       = 5
	tensorName       = 8
	tensorRaw        = 9
)

// The types of elements that are read, from TensorProto.DataType.
const (
	typeFloat = 1
	typeUint8 = 2
	typeInt8  = 3
)

// graph is what is needed of an ONNX file. Its slices of bytes share memory with the file.
type graph struct {
	tensors map[string]*tensor
	matMuls map[string][]string // inputs of MatMulInteger nodes by node name
}

// tensor is an initializer. Its content is raw, or else in floats or ints.
type tensor struct {
	dims   []int64
	typ    uint64
	raw    []byte
	floats []float32
	ints   []int32
	used   bool // by a product; small files could otherwise describe huge networks
}

var errONNX = errors.New("malformed onnx file")

// parseONNX reads the initializers and the integer products of a model. It allocates at most a few
// bytes for each byte of the file.
func parseONNX(data []byte) (*graph, error) {
	g := &graph{tensors: map[string]*tensor{}, matMuls: map[string][]string{}}
	found := false
	err := eachField(data, func(f field) error {
		if f.num != modelGraph || f.typ != protowire.BytesType {
			return nil
		}
		found = true
		return eachField(f.bytes, g.addField)
	})
	if err == nil && !found {
		err = errors.New("no graph")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errONNX, err)
	}
	return g, nil
}

func (g *graph) addField(f field) error {
	switch {
	case f.typ != protowire.BytesType:
	case f.num == graphNode:
		return g.addNode(f.bytes)
	case f.num == graphInitializer:
		return g.addTensor(f.bytes)
	}
	return nil
}

func (g *graph) addNode(data []byte) error {
	var name, op string
	var inputs []string
	err := eachField(data, func(f field) error {
		switch {
		case f.typ != protowire.BytesType:
		case f.num == nodeInput:
			inputs = append(inputs, string(f.bytes))
		case f.num == nodeName:
			name = string(f.bytes)
		case f.num == nodeOp:
			op = string(f.bytes)
		}
		return nil
	})
	if err == nil && op == "MatMulInteger" {
		g.matMuls[name] = inputs
	}
	return err
}

func (g *graph) addTensor(data []byte) error {
	t, name := &tensor{}, ""
	err := eachField(data, func(f field) error {
		switch f.num {
		case tensorName:
			name = string(f.bytes)
		case tensorType:
			t.typ = f.value
		case tensorRaw:
			t.raw = f.bytes
		case tensorDims:
			return eachVarint(f, func(v uint64) { t.dims = append(t.dims, int64(v)) })
		case tensorInts:
			return eachVarint(f, func(v uint64) { t.ints = append(t.ints, int32(v)) })
		case tensorFloats:
			return t.addFloats(f)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("tensor %q: %w", name, err)
	}
	g.tensors[name] = t
	return nil
}

func (t *tensor) addFloats(f field) error {
	switch {
	case f.typ == protowire.Fixed32Type:
		t.floats = append(t.floats, math.Float32frombits(uint32(f.value)))
	case f.typ == protowire.BytesType && len(f.bytes)%4 == 0:
		t.floats = appendFloats(t.floats, f.bytes)
	default:
		return errors.New("float data is malformed")
	}
	return nil
}

func appendFloats(dst []float32, data []byte) []float32 {
	dst = slices.Grow(dst, len(data)/4)
	for ; len(data) >= 4; data = data[4:] {
		dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(data)))
	}
	return dst
}

// field is one field of a protobuf message: bytes if typ is BytesType, else value.
type field struct {
	num   protowire.Number
	typ   protowire.Type
	bytes []byte
	value uint64
}

// eachField calls visit with every field of a message in order.
func eachField(data []byte, visit func(field) error) error {
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		f := field{num: num, typ: typ}
		switch typ {
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(data)
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(data)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(data)
			f.value = uint64(v)
		default:
			n = protowire.ConsumeFieldValue(num, typ, data)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// eachVarint calls visit with the numbers of a repeated field, packed or not.
func eachVarint(f field, visit func(uint64)) error {
	switch f.typ {
	case protowire.VarintType:
		visit(f.value)
		return nil
	case protowire.BytesType:
	default:
		return errors.New("integer data is malformed")
	}
	for data := f.bytes; len(data) > 0; {
		v, n := protowire.ConsumeVarint(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		visit(v)
		data = data[n:]
	}
	return nil
}

// floats returns a float32 tensor of a shape; no dims is a scalar.
func (g *graph) floats(name string, dims ...int) ([]float32, error) {
	t, err := g.tensor(name, typeFloat, dims)
	if err != nil {
		return nil, err
	}
	values := t.floats
	if len(values) == 0 && len(t.raw)%4 == 0 {
		values = appendFloats(nil, t.raw)
	}
	return values, t.check(name, len(values))
}

// bytes returns the content of a tensor of uint8 or int8.
func (g *graph) bytes(name string, typ uint64, dims ...int) ([]byte, error) {
	t, err := g.tensor(name, typ, dims)
	if err != nil {
		return nil, err
	}
	values := t.raw
	if len(values) == 0 {
		values = make([]byte, len(t.ints))
		for i, v := range t.ints {
			values[i] = byte(v)
		}
	}
	return values, t.check(name, len(values))
}

// anyLength in a wanted shape matches every length but 0.
const anyLength = -1

// tensor returns an initializer of a type and a shape.
func (g *graph) tensor(name string, typ uint64, dims []int) (*tensor, error) {
	t, ok := g.tensors[name]
	if !ok {
		return nil, fmt.Errorf("tensor %q is missing", name)
	}
	same := func(got int64, want int) bool { return got == int64(want) || want == anyLength && got > 0 }
	if t.typ != typ || !slices.EqualFunc(t.dims, dims, same) {
		return nil, fmt.Errorf("tensor %q has type %d and shape %d, want %d and %d", name, t.typ, t.dims, typ, dims)
	}
	return t, nil
}

// check returns an error if the content does not have as many elements as the shape.
func (t *tensor) check(name string, elements int) error {
	rest := int64(elements)
	for _, d := range t.dims {
		if d <= 0 || rest%d != 0 {
			return fmt.Errorf("tensor %q has %d elements and shape %d", name, elements, t.dims)
		}
		rest /= d
	}
	if rest != 1 {
		return fmt.Errorf("tensor %q has %d elements and shape %d", name, elements, t.dims)
	}
	return nil
}
