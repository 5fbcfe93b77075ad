package event

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
)

// SaltSize is the size of a salt in bytes.
const SaltSize = 16

// The salt is the last member of the metadata, so that the metadata without it is what was stored
// without these bytes: `,"salt":"<base64>"` before the closing brace.
const (
	saltBegins = `,"salt":"`
	saltEnds   = `"}`
)

// saltText is the encoding of a salt. Strict: each salt has one text.
var saltText = base64.StdEncoding.Strict()

// errNoSalt is returned for metadata that does not end with a salt.
var errNoSalt = errors.New("the metadata does not end with a salt")

// WithSalt adds a salt to encoded metadata, which must be a JSON object with a member.
func WithSalt(meta []byte, salt [SaltSize]byte) []byte {
	body := bytes.TrimSuffix(meta, []byte("}"))
	salted := make([]byte, 0, len(body)+len(saltBegins)+saltText.EncodedLen(SaltSize)+len(saltEnds))
	salted = append(append(salted, body...), saltBegins...)
	return append(saltText.AppendEncode(salted, salt[:]), saltEnds...)
}

// SplitSalt returns metadata as it is stored but without the salt, and the salt. It undoes WithSalt,
// to the byte: no two pairs of metadata and salt are stored as the same bytes. It fails if meta is
// not a JSON object, or does not end with a salt.
func SplitSalt(meta []byte) (rest []byte, salt [SaltSize]byte, err error) {
	at := len(meta) - len(saltBegins) - saltText.EncodedLen(SaltSize) - len(saltEnds)
	if at <= 0 || !json.Valid(meta) || meta[0] != '{' {
		return nil, salt, errNoSalt
	}
	text, begins := bytes.CutPrefix(meta[at:], []byte(saltBegins))
	text, ends := bytes.CutSuffix(text, []byte(saltEnds))
	if !begins || !ends {
		return nil, salt, errNoSalt
	}
	decoded, err := saltText.DecodeString(string(text))
	if err != nil || len(decoded) != SaltSize {
		return nil, salt, errNoSalt
	}
	return append(bytes.Clone(meta[:at]), '}'), [SaltSize]byte(decoded), nil
}
