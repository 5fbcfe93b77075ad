package minilm

import (
	"fmt"
	"slices"
)

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
