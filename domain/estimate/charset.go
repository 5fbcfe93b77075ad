package estimate

import (
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"

	"github.com/annals-project/annals/domain/charset"
)

// encodingOf returns the encoding that a charset names, nil for a name that is not known.
func encodingOf(name string) encoding.Encoding { return charset.Of(name) }

// isUTF8 reports whether a charset names UTF-8 or its part ASCII.
func isUTF8(charset string) bool {
	switch strings.ToLower(charset) {
	case "", "utf-8", "utf8", "us-ascii", "ascii", "ansi_x3.4-1968":
		return true
	}
	return false
}

// isShifted reports whether a charset writes all characters with the bytes of ASCII.
func isShifted(charset string) bool {
	charset = strings.ToLower(charset)
	return strings.HasPrefix(charset, "iso-2022") || charset == "hz-gb-2312" || charset == "csiso2022jp"
}

// isWide reports whether the bytes of a charset say nothing by themselves: a text in it can be valid UTF-8.
func isWide(charset string) bool {
	charset = strings.ToLower(charset)
	return strings.HasPrefix(charset, "utf-16") || strings.HasPrefix(charset, "utf-32")
}

// isDouble reports whether a charset has characters of two bytes.
func isDouble(charset string) bool {
	switch encodingOf(charset) {
	case japanese.ShiftJIS, japanese.EUCJP, korean.EUCKR, simplifiedchinese.GBK, simplifiedchinese.GB18030,
		traditionalchinese.Big5:
		return true
	}
	return false
}
