package directory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/annals-project/annals/internal/rawjson"
)

// maxMarkedText is the most bytes of traits as JSON that are marked: what is longer is not even decoded, since a record may have
// megabytes of traits, and a page many such records.
const maxMarkedText = 256 << 10

// encodeTraits writes traits with sorted keys, and without the escapes for HTML.
func encodeTraits(values map[string]string) (string, error) {
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	if err := to.Encode(values); err != nil {
		return "", fmt.Errorf("encode traits: %w", err)
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}

func decodeTraits(text string) (map[string]string, error) {
	values := map[string]string{}
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return nil, fmt.Errorf("decode traits: %w", err)
	}
	return values, nil
}

// traitsText is traits that were written as JSON, as they are kept; ok is false for what is no object.
func traitsText(raw []byte) (text string, ok bool) {
	if rawjson.Check(raw) != nil || rawjson.KindOf(raw) != rawjson.Object {
		return "", false
	}
	return string(raw), true
}

// names is a set of traits that rules compare.
type names map[string]struct{}

// pick adds the values of named traits to a map, out of the JSON of all of them, which may be long.
func (n names) pick(text []byte, into map[string]string) {
	if len(n) == 0 {
		return
	}
	rawjson.Each(text, func(name string, value []byte) bool {
		if _, named := n[name]; named {
			if text, ok := rawjson.Text(value); ok {
				into[name] = text
			}
		}
		return true
	})
}

// picked are the values of named traits.
func (n names) picked(text string) map[string]string {
	values := map[string]string{}
	n.pick([]byte(text), values)
	return values
}
