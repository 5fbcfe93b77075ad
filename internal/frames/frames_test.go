package frames_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/frames"
)

// written are a long text, a value, and an empty one.
func written(t *testing.T) (stream, text []byte) {
	t.Helper()
	var out bytes.Buffer
	flushed := 0
	w := frames.NewWriter(&out, func() error { flushed = out.Len(); return nil })
	text = []byte(strings.Repeat("long ", 40_000))
	if n, err := w.Write(text); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	for _, v := range []any{map[string]int{"n": 7}, struct{}{}} {
		if err := w.Value('M', v); err != nil || flushed != out.Len() {
			t.Fatalf("flushed %d of %d, %v", flushed, out.Len(), err)
		}
	}
	return out.Bytes(), text
}

func TestReader_ReturnsWhatWasWritten(t *testing.T) {
	stream, text := written(t)
	r := frames.NewReader(bytes.NewReader(stream))
	var got []byte
	for len(got) < len(text) {
		kind, payload, err := r.Next()
		if kind != frames.Bytes || err != nil {
			t.Fatalf("%c, %v", kind, err)
		}
		got = append(got, payload...)
	}
	if !bytes.Equal(got, text) {
		t.Error("another text")
	}
	kind, payload, err := r.Next()
	n := 0
	read := frames.Decoded(payload, func(v struct{ N int }) error { n = v.N; return nil })
	if kind != 'M' || err != nil || read != nil || n != 7 {
		t.Errorf("%c %s, %v, %v", kind, payload, err, read)
	}
	if _, payload, err := r.Next(); string(payload) != "{}" || err != nil {
		t.Errorf("%s, %v", payload, err)
	}
}

func TestReader_StreamThatBreaksOff(t *testing.T) {
	stream, _ := written(t)
	for _, broken := range [][]byte{nil, stream[:3], stream[:100], {'L', 0, 1, 0, 1}, {'L', 255, 255, 255, 255}} {
		if _, _, err := frames.NewReader(bytes.NewReader(broken)).Next(); !errors.Is(err, frames.ErrBrokenOff) {
			t.Errorf("%d bytes: %v", len(broken), err)
		}
	}
}

func TestDecoded_NoJSON(t *testing.T) {
	if err := frames.Decoded([]byte("{"), func(struct{}) error { return nil }); err == nil {
		t.Error("half a value is decoded")
	}
}
