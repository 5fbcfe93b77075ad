package sources

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"

	"github.com/annals-project/annals/domain/limit"
)

// Text decodes a file: UTF-8, UTF-16 with a byte order mark, else Windows-1252. skipped is the reason why
// it is not text, "" if it is.
func Text(raw []byte) (text, skipped string) {
	switch {
	case bytes.HasPrefix(raw, []byte("\xff\xfe")), bytes.HasPrefix(raw, []byte("\xfe\xff")):
		decoded, err := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder().Bytes(raw)
		if err != nil {
			return "", "is not text: " + err.Error()
		}
		raw = decoded
	case utf8.Valid(raw):
	case isBinary(raw):
		return "", "is not text"
	default:
		decoded, err := charmap.Windows1252.NewDecoder().Bytes(raw)
		if err != nil {
			return "", "is not text: " + err.Error()
		}
		raw = decoded
	}
	switch {
	case bytes.IndexByte(raw, 0) >= 0:
		return "", "is not text: it holds U+0000"
	case len(raw) > limit.EstimateFileBytes:
		return "", fmt.Sprintf("has %d bytes: want at most %d", len(raw), limit.EstimateFileBytes)
	}
	return string(raw), ""
}

// isBinary reports whether bytes that are not UTF-8 hold control characters that no text has.
func isBinary(raw []byte) bool {
	controls := 0
	for _, b := range raw[:min(len(raw), 64<<10)] {
		if b == 0 {
			return true
		}
		if b < ' ' && b != '\n' && b != '\r' && b != '\t' && b != '\f' && b != 0x1b {
			controls++
		}
	}
	return controls > len(raw[:min(len(raw), 64<<10)])/1000
}
