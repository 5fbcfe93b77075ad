package datafolder

import (
	"encoding/base64"
	"encoding/hex"
	"testing"
)

func TestDecodeSecret_HexAndBase64(t *testing.T) {
	want := []byte("0123456789abcdef0123456789abcdef")
	for _, text := range []string{
		hex.EncodeToString(want), base64.StdEncoding.EncodeToString(want),
		base64.RawURLEncoding.EncodeToString(want),
	} {
		got, err := DecodeSecret(text)
		if err != nil || string(got) != string(want) {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
}
