package requestlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// MaxBody is the most bytes of a body that are kept.
const MaxBody = 256 << 10

// The encodings of a stored body, its first byte. An empty body has none.
const (
	plain  = 0
	packed = 1
)

// packFrom is the length from which a body is compressed.
const packFrom = 512

// codecs are safe for concurrent use. The decoder refuses what is longer than any stored body.
var codecs = sync.OnceValues(func() (*zstd.Encoder, *zstd.Decoder) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(fmt.Sprintf("zstd encoder: %v", err)) // the options are constant
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(16<<20))
	if err != nil {
		panic(fmt.Sprintf("zstd decoder: %v", err))
	}
	return encoder, decoder
})

// pack encodes a body as it is stored, nil for an empty one.
func pack(body []byte) []byte {
	if len(body) == 0 {
		return nil
	}
	if len(body) >= packFrom {
		encoder, _ := codecs()
		if small := encoder.EncodeAll(body, append(make([]byte, 0, len(body)/2), packed)); len(small) <= len(body) {
			return small
		}
	}
	return append([]byte{plain}, body...)
}

// unpack is the reverse of pack.
func unpack(stored []byte) ([]byte, error) {
	if len(stored) == 0 {
		return nil, nil
	}
	switch stored[0] {
	case plain:
		return bytes.Clone(stored[1:]), nil
	case packed:
		_, decoder := codecs()
		body, err := decoder.DecodeAll(stored[1:], nil)
		if err != nil {
			return nil, fmt.Errorf("unpack a stored body: %w", err)
		}
		return body, nil
	default:
		return nil, errors.New("unpack a stored body: unknown encoding")
	}
}

func methodOf(endpoint string) string {
	method, _, _ := strings.Cut(endpoint, " ")
	return method
}

// maxDroppedBy is the most bytes of a stored filter.
const maxDroppedBy = 1024

// encode returns the webhook of a call as JSON, without the values of keys.
func (w Webhook) encode() *string {
	w.Name = redactText(w.Name, maxName)
	if w.DroppedBy != nil {
		by := redactText(*w.DroppedBy, maxDroppedBy)
		w.DroppedBy = &by
	}
	text, err := json.Marshal(w)
	if err != nil {
		return nil // unreachable: strings
	}
	encoded := string(text)
	return &encoded
}

// withoutFilter removes from a stored webhook which filter dropped the event: filters are text.
func withoutFilter(stored *string) (*string, error) {
	w, err := webhookOf(stored)
	if w == nil || err != nil {
		return nil, err
	}
	w.DroppedBy = nil
	return w.encode(), nil
}

func webhookOf(text *string) (*Webhook, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // no webhook is no error
	}
	var w Webhook
	if err := json.Unmarshal([]byte(*text), &w); err != nil {
		return nil, fmt.Errorf("read the webhook of a call: %w", err)
	}
	return &w, nil
}
