package bleve

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// What is packed is read as it was, and a run of zeros takes a few bytes.
func TestPack_Law(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()), rapid.SliceOf(rapid.SampledFrom([]byte{0, 0, 0, zerosMark, literal})),
			rapid.Map(rapid.IntRange(0, 3*len(zeros)), func(n int) []byte { return make([]byte, n) }),
		).Draw(t, "piece")
		packed := pack(bytes.Clone(piece))
		got, err := unpack(packed)
		if err != nil || !bytes.Equal(got, piece) {
			t.Fatalf("%x is read as %x, %v", piece, got, err)
		}
		if len(packed) > len(piece)+1 || len(piece) > leastZeros && len(bytes.Trim(piece, "\x00")) == 0 && len(packed) > 5 {
			t.Fatalf("%d bytes are packed into %d", len(piece), len(packed))
		}
	})
}

func TestUnpack_Damaged(t *testing.T) {
	for _, piece := range [][]byte{{zerosMark}, {zerosMark, 5, 5}, {zerosMark, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F}} {
		if _, err := unpack(piece); err == nil {
			t.Errorf("%x is read", piece)
		}
	}
}
