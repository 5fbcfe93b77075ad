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
	if !Each([]byte(text), func(name string, member []byte) bool {
		got = append(got, fmt.Sprintf("%s=%s", name, member))
		return true
	}) {
		t.Error("it is an object")
	}
	if want := []string{`a="1"`, `b={"c":[1,2]}`, `a=null`, `="x\"}"`}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	calls := 0
	if !Each([]byte(`{"a":1,"b":2}`), func(string, []byte) bool { calls++; return false }) || calls != 1 {
		t.Errorf("%d calls", calls)
	}
	for _, other := range []string{`[]`, `"x"`, `7`, `null`, `true`} {
		if Each([]byte(other), func(string, []byte) bool { return true }) {
			t.Errorf("%s is no object", other)
		}
	}
	if !Each([]byte(`{}`), func(string, []byte) bool { t.Error("there is no member"); return true }) {
		t.Error("{} is an object")
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
		isObject := Each(text, func(name string, member []byte) bool {
			got[name] = member
			return true
		})
		if isObject != (KindOf(text) == Object) || len(got) != len(want) {
			t.Fatalf("%q: %d members, want %d", text, len(got), len(want))
		}
		for name, member := range want {
			if string(got[name]) != string(member) {
				t.Errorf("%q: member %q is %s, want %s", text, name, got[name], member)
			}
		}
	})
}
