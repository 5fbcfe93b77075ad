package rawjson

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// Each byte is read at most once, however many paths there are and however they overlap.
func TestPaths_OnePass(t *testing.T) {
	body := []byte(`{"a":` + strings.Repeat(`[{"b":["x",1,{"\u0063":[[["deep"]]]}]},`, 50) + "null" + strings.Repeat("]", 50) +
		`,"\u0061\u0061":"` + strings.Repeat("x", 1000) + `"}`)
	var paths Paths
	for i := range 20 {
		steps := []Step{{Name: "a", Index: -1}}
		for range i % 10 {
			steps = append(steps, Step{Index: i % 3})
		}
		paths.Add(steps)
		paths.Watch(append(steps, Step{Name: "b", Index: -1}), fmt.Sprint("x", i%2))
		paths.Add(steps[1:])
	}
	if found := paths.Find(body); found.examined > len(body) {
		t.Errorf("%d bytes of %d were read", found.examined, len(body))
	}
	if found := new(Paths).Find(body); found.examined != 0 {
		t.Errorf("%d bytes were read without a path", found.examined)
	}
}

// FuzzEqualText compares with the decoded text.
func FuzzEqualText(f *testing.F) {
	for _, inside := range []string{
		`a\u00e9\n`, `\ud83d\udca1`, `\ud83d`, `\ud83d\u0041`, `\/\"\\\b\f\r\t`, "\xff\xfe", "\xff\\n\xff\xff", "\xf0\x9f", "é\ufffd",
	} {
		f.Add(inside, inside)
	}
	f.Fuzz(func(t *testing.T, inside, other string) {
		value := []byte(`"` + inside + `"`)
		if !json.Valid(value) || KindOf(value) != String || skipValue(value, 0) != len(value) {
			return
		}
		text, _ := Text(value)
		text = strings.ToValidUTF8(text, "\ufffd")
		if !EqualText(value, text) || EqualText(value, text+"x") || EqualText(value, "x"+text) {
			t.Errorf("%s is not %q", value, text)
		}
		other = strings.ToValidUTF8(other, "")
		if EqualText(value, other) != (text == other) {
			t.Errorf("%s equals %q", value, other)
		}
		room := make(plain, len(text))
		if got, ok := room.text(value[1 : len(value)-1]); !ok || string(got) != text {
			t.Errorf("%s is %q, %v", value, got, ok)
		}
		if text != "" {
			if got, ok := room[1:].text(value[1 : len(value)-1]); ok {
				t.Errorf("%s is %q in less room", value, got)
			}
		}
	})
}

func TestEach(t *testing.T) {
	var got []string
	text := ` { "a" : "1" ,"\u0062":{"c":[1,2]}, "a":null,"":"x\"}" } `
	runtest.Must(t, Check([]byte(text)))
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
