package rawjson_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/rawjson"
)

func TestScan_Surrogates(t *testing.T) {
	for text, whole := range map[string]bool{
		`"\ud83d\udca1"`: true, `"\uD83D\uDCA1"`: true, `"\u00e9\n\\ud800"`: true, `"\\\\ud800"`: true, `"\ud7ff\ue000"`: true,
		`"\ud800"`: false, `"\udc00"`: false, `"\udca1\ud83d"`: false, `"\ud800\ud800"`: false, `"\ud800x"`: false, `"\ud800\n"`: false,
		`"\\\ud800"`: false, `"\ud800\u0041"`: false, `{"\ud800":1}`: false, `[{"a":["\udfff"]}]`: false, `"\ud83d\udca1\ud83d"`: false,
		`"\ud800\\udc00"`: false,
	} {
		if err := rawjson.Check([]byte(text)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if _, err := rawjson.Scan([]byte(text)); errors.Is(err, rawjson.ErrSurrogate) == whole {
			t.Errorf("%s: %v, want whole %v", text, err, whole)
		}
	}
}

func TestScan_Values(t *testing.T) {
	for text, want := range map[string]int{
		`0`: 1, ` -1.5e3 `: 1, `"a,b:[c]"`: 1, `null`: 1, `{}`: 1, `[]`: 1, `[0,0,0]`: 4, `{"a":1}`: 3, ` { "a" : [ true , "x" ] , "b" : { } } `: 7,
		`["\"",1]`: 3,
	} {
		if got, err := rawjson.Scan([]byte(text)); got != want || err != nil {
			t.Errorf("%s: %d values, %v, want %d", text, got, err, want)
		}
	}
}

// FuzzScan compares the count with that of the standard decoder, and the half pairs with what it
// replaces.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"\ud83d\udca1",null]}`, `"\ud800\ud800"`, `["\\\\\\ud800"]`, ` [ -0.0 , {"":""} ] `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if rawjson.Check(text) != nil || strings.Contains(string(text), "\ufffd") ||
			strings.Contains(strings.ToLower(string(text)), `\ufffd`) {
			return
		}
		values, err := rawjson.Scan(text)
		want, replaced := 0, false
		for tokens := json.NewDecoder(strings.NewReader(string(text))); ; {
			token, end := tokens.Token()
			if end != nil {
				break
			}
			switch token := token.(type) {
			case json.Delim:
				if token == '}' || token == ']' {
					continue
				}
			case string:
				replaced = replaced || strings.ContainsRune(token, '\ufffd')
			}
			want++
		}
		if replaced != errors.Is(err, rawjson.ErrSurrogate) {
			t.Fatalf("%s: %v, the decoder replaces: %v", text, err, replaced)
		}
		if err == nil && values != want {
			t.Fatalf("%s: %d values, want %d", text, values, want)
		}
	})
}
