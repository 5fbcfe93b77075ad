package rawjson

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

func TestEach(t *testing.T) {
	var got []string
	text := ` { "a" : "1" ,"\u0062":{"c":[1,2]}, "a":null,"":"x\"}" } `
	if err := Check([]byte(text)); err != nil {
		t.Fatal(err)
	}
	for name, member := range Each([]byte(text)) {
		got = append(got, fmt.Sprintf("%s=%s", name, member))
	}
	if want := []string{`a="1"`, `b={"c":[1,2]}`, `a=null`, `="x\"}"`}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for name := range Each([]byte(`{"a":1,"b":2}`)) {
		if name != "a" {
			t.Errorf("%q comes after the loop has ended", name)
		}
		break
	}
	for _, other := range []string{`{}`, ` { } `, `[1]`, `["a","b"]`, `[{"a":1}]`, `"x"`, `7`, `null`, `true`} {
		for name := range Each([]byte(other)) {
			t.Errorf("%s has the member %q", other, name)
		}
	}
}

// FuzzEach holds the members of any object against what the standard library reads.
func FuzzEach(f *testing.F) {
	for _, seed := range []string{`{"a":1,"a":2}`, `{"\ud800":"x","é":[{}]}`, `{}`, `[1]`, `{"a":{"b":"}"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want map[string]json.RawMessage
		if Check(text) != nil || json.Unmarshal(text, &want) != nil {
			return
		}
		got := map[string]json.RawMessage{}
		for name, member := range Each(text) {
			got[name] = member
		}
		if len(got) != len(want) {
			t.Fatalf("%q: %d members, want %d", text, len(got), len(want))
		}
		for name, member := range want {
			if string(got[name]) != string(member) {
				t.Errorf("%q: member %q is %s, want %s", text, name, got[name], member)
			}
		}
	})
}
