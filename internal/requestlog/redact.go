package requestlog

import (
	"bytes"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A key value, also with characters that are escaped in JSON.
var (
	keyBegin = escapable("s") + escapable("v") + escapable("c") + escapable("_") + escapable("sm") + escapable("k") +
		escapable("_")
	keyValue  = regexp.MustCompile("(" + keyBegin + `)(?:[A-Za-z0-9_-]|\\u00[0-9a-fA-F]{2})+`)
	redaction = []byte("${1}redacted")
)

// escapable is a pattern of one of some characters, escaped as \u00XX or not.
func escapable(characters string) string {
	pattern := "(?:[" + characters + "]"
	for _, c := range []byte(characters) {
		const digits = "0123456789abcdef"
		low := string(digits[c&15])
		pattern += `|\\u00` + string(digits[c>>4]) + "[" + low + strings.ToUpper(low) + "]"
	}
	return pattern + ")"
}

// redact returns a copy of a text in which the values of keys are replaced.
func redact(text []byte) []byte {
	if !bytes.Contains(text, []byte("vc_")) && !bytes.Contains(text, []byte(`\u00`)) {
		return bytes.Clone(text)
	}
	return keyValue.ReplaceAll(text, redaction)
}

// redactText is redact of a text that a column of type text can hold, cut at a number of bytes.
func redactText(text string, most int) string {
	if strings.Contains(text, "vc_") || strings.Contains(text, `\u00`) {
		text = keyValue.ReplaceAllString(text, string(redaction))
	}
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	for len(text) > most {
		_, size := utf8.DecodeLastRuneInString(text[:most])
		if utf8.RuneStart(text[most]) {
			size = 0
		}
		text = text[:most-size]
	}
	return text
}

// maxPath is the most bytes of a stored path.
const maxPath = 4096

// tokenParameter is the parameter of a template that is the token of a webhook, the last one of its path.
const tokenParameter = "{token}"

// redactPath returns the path of a call of an endpoint as it is stored: percent-encoded, without the token of a webhook
// and without the values of keys. Of a path without a route nobody knows what it holds, as of a misspelt one of a
// webhook: then the template is stored.
func redactPath(endpoint, escaped string) string {
	_, template, _ := strings.Cut(endpoint, " ")
	segments, parameters := strings.Split(escaped, "/"), strings.Split(template, "/")
	if len(segments) != len(parameters) || parameters[len(parameters)-1] == "*" {
		return template
	}
	if token := slices.Index(parameters, tokenParameter); token >= 0 {
		escaped = strings.Join(segments[:token], "/")
	}
	if clear, err := url.PathUnescape(escaped); err == nil && keyValue.MatchString(clear) {
		segments := strings.Split(escaped, "/")
		for i, s := range segments {
			if clear, err := url.PathUnescape(s); err == nil {
				segments[i] = url.PathEscape(keyValue.ReplaceAllString(clear, string(redaction)))
			}
		}
		escaped = strings.Join(segments, "/")
	}
	return redactText(escaped, maxPath)
}
