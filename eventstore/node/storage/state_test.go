package storage

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// $tb is set in metadata without any other change to its text.
func TestTruncatedJSON(t *testing.T) {
	for _, tt := range []struct{ name, metadata, want string }{
		{"in its place", `{"a":1,"$tb":9223372036854775807,"b":2}`, `{"a":1,"$tb":7,"b":2}`},
		{"spaces", " {\n \"$tb\" : 1 ,\t\"b\" : [ ] }\n", " {\n \"$tb\" : 7 ,\t\"b\" : [ ] }\n"},
		{"numbers", `{"n":1.50,"e":1E+2,"big":123456789012345678901,"$tb":1}`, `{"n":1.50,"e":1E+2,"big":123456789012345678901,"$tb":7}`},
		{"text", `{"é":"\u00e9<&","$tb":1}`, `{"é":"\u00e9<&","$tb":7}`},
		{"twice", `{"$tb":1,"$tb":2}`, `{"$tb":7,"$tb":7}`},
		{"an escaped key", `{"\u0024tb":1}`, `{"\u0024tb":7}`},
		{"another key that looks like it", `{"$TB":1,"x":{"$tb":2}}`, `{"$TB":1,"x":{"$tb":2},"$tb":7}`},
		{"missing", `{"a":{}}`, `{"a":{},"$tb":7}`},
		{"no keys", ` { } `, ` { "$tb":7} `},
		{"not a number", `{"$tb":null}`, `{"$tb":7}`},
		{"no object", `[1]`, `{"$tb":7}`},
		{"null", `null`, `{"$tb":7}`},
		{"nothing", ``, `{"$tb":7}`},
		{"not JSON", `{"a":1`, `{"$tb":7}`},
	} {
		got := string(truncatedJSON([]byte(tt.metadata), 7))
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		if m := parseMeta([]byte(got)); m.truncateBefore != 7 {
			t.Errorf("%s: %s is %+v", tt.name, got, m)
		}
	}
}

// A key has an effect only as it is spelled; one invalid value makes all metadata count as empty.
func TestParseMeta(t *testing.T) {
	for _, tt := range []struct {
		metadata string
		want     streamMeta
	}{
		{`{"$tb":3,"$maxCount":2,"$maxAge":1}`, streamMeta{truncateBefore: 3, maxCount: 2, maxAge: 1e9}},
		{`{"$TB":3,"$MaxCount":2}`, streamMeta{}},
		{`{"$tb":null,"$maxCount":2}`, streamMeta{maxCount: 2}},
		{`{"$tb":1,"$tb":3}`, streamMeta{truncateBefore: 3}},
		{`{"$tb":3,"$maxCount":0}`, streamMeta{}},
		{`{"$tb":3,"$maxAge":"1"}`, streamMeta{}},
		{`{"$tb":-1,"$maxCount":2}`, streamMeta{}},
		{`{"$tb":1.5,"$maxCount":2}`, streamMeta{}},
		{`[]`, streamMeta{}},
	} {
		if diff := cmp.Diff(tt.want, parseMeta([]byte(tt.metadata)), cmp.AllowUnexported(streamMeta{})); diff != "" {
			t.Errorf("%s: %s", tt.metadata, diff)
		}
	}
}
