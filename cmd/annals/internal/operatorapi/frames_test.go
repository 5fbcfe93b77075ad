package operatorapi

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"
)

// writtenFrames are a long text, a value, and an empty one as the last.
func writtenFrames(t *testing.T) (stream, text []byte) {
	t.Helper()
	var out bytes.Buffer
	flushed := 0
	w := &frameWriter{bufio.NewWriterSize(&out, maxPayload), func() error { flushed = out.Len(); return nil }}
	text = []byte(strings.Repeat("long ", 40_000))
	if n, err := w.Write(text); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	for _, v := range []struct {
		kind  byte
		value any
	}{{'M', map[string]int{"n": 7}}, {frameEnd, None{}}} {
		if err := w.Value(v.kind, v.value); err != nil || flushed != out.Len() {
			t.Fatalf("flushed %d of %d, %v", flushed, out.Len(), err)
		}
	}
	return out.Bytes(), text
}

func TestFrames_ReturnWhatWasWritten(t *testing.T) {
	stream, text := writtenFrames(t)
	var got bytes.Buffer
	n := 0
	last, err := readFrames(bytes.NewReader(stream), func(kind byte, payload []byte) error {
		if kind == 'M' {
			return decoded(payload, func(v struct{ N int }) error { n = v.N; return nil })
		}
		return bytesTo(&got, kind, payload)
	})
	if err != nil || string(last) != "{}" || n != 7 || !bytes.Equal(got.Bytes(), text) {
		t.Errorf("%d bytes of %d, the value %d, last %s, %v", got.Len(), len(text), n, last, err)
	}
}

func TestFrames_AnswerThatBreaksOff(t *testing.T) {
	stream, _ := writtenFrames(t)
	var nowhere bytes.Buffer
	take := func(kind byte, payload []byte) error { return bytesTo(&nowhere, kind, payload) }
	for _, broken := range [][]byte{
		nil, stream[:3], stream[:100], {'L', 0, 1, 0, 1}, {'L', 255, 255, 255, 255}, {'L', 0, 0, 0, 1, 'x'}, {'?', 0, 0, 0, 0},
	} {
		if _, err := readFrames(bytes.NewReader(broken), take); !errors.Is(err, errBrokenOff) {
			t.Errorf("%d bytes: %v", len(broken), err)
		}
	}
}

func TestDecoded_NoJSON(t *testing.T) {
	if err := decoded([]byte("{"), func(struct{}) error { return nil }); err == nil {
		t.Error("half a value is decoded")
	}
}
