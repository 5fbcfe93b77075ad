// Package charset finds the encodings that the names of charsets mean, as programs write them.
package charset

import (
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// aliases are names that mail programs write and that no index has, or has as another encoding. Without a byte
// order mark UTF-16 and UTF-32 are big-endian, as RFC 2781 has it.
var aliases = map[string]encoding.Encoding{
	"utf-16": unicode.UTF16(unicode.BigEndian, unicode.UseBOM),
	"utf-32": utf32.UTF32(utf32.BigEndian, utf32.UseBOM),
	"cp932":  japanese.ShiftJIS, "windows-932": japanese.ShiftJIS, "cp936": simplifiedchinese.GBK,
	"cp949": korean.EUCKR, "cp950": traditionalchinese.Big5, "hz-gb-2312": simplifiedchinese.HZGB2312,
	"ms932": japanese.ShiftJIS, "cp51932": japanese.EUCJP, "eucjpms": japanese.EUCJP, "iso2022jpms": japanese.ISO2022JP,
	"cp50220": japanese.ISO2022JP, "cp50221": japanese.ISO2022JP, "latin1": charmap.Windows1252, "latin9": charmap.ISO8859_15,
	"latin2": charmap.ISO8859_2, "macroman": charmap.Macintosh, "cp10000": charmap.Macintosh, "dos862": charmap.CodePage862,
	"utf8mb4": unicode.UTF8, "koi8r": charmap.KOI8R, "koi8u": charmap.KOI8U,
}

// plainName is a name without the signs, and by the number, that programs write in many ways: windows1251, win-1251
// and cp-1251 are one.
func plainName(name string) string {
	name = strings.NewReplacer("-", "", "_", "", " ", "", "$", "").Replace(strings.TrimPrefix(name, "x-"))
	for _, begin := range []string{"windows", "win", "cp"} {
		if number, ok := strings.CutPrefix(name, begin); ok && len(number) == 4 && strings.HasPrefix(number, "125") {
			return "windows-" + number
		}
	}
	if number, ok := strings.CutPrefix(name, "iso8859"); ok {
		return "iso-8859-" + number
	}
	return name
}

// Of returns the encoding that a charset names, nil for a name that is not known.
func Of(charset string) encoding.Encoding {
	name := strings.ToLower(strings.Trim(charset, " \t\"'"))
	if e, ok := aliases[name]; ok {
		return e
	}
	if e, err := htmlindex.Get(name); err == nil && e != encoding.Replacement {
		return e
	}
	plain := plainName(name)
	if e, ok := aliases[plain]; ok {
		return e
	}
	if e, err := htmlindex.Get(plain); err == nil && e != encoding.Replacement {
		return e
	}
	for _, index := range []*ianaindex.Index{ianaindex.MIME, ianaindex.IANA} {
		if e, err := index.Encoding(name); err == nil && e != nil {
			return e
		}
	}
	return nil
}
