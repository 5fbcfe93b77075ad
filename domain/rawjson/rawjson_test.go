package rawjson_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/rawjson"
)

func TestMembers(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want map[string]string
	}{
		"none":                {`{}`, map[string]string{}},
		"space":               {" {\n\t\"a\" : 1 , \"b\":\r[ ] } ", map[string]string{"a": "1", "b": "[ ]"}},
		"every kind":          {`{"a":null,"b":-1.5e3}`, map[string]string{"a": "null", "b": "-1.5e3"}},
		"not asked for":       {`{"c":{"a":1},"a":"x"}`, map[string]string{"a": `"x"`}},
		"the last one counts": {`{"a":1,"b":2,"a":{"x":[1,2]}}`, map[string]string{"a": `{"x":[1,2]}`, "b": "2"}},
		"other case":          {`{"A":1,"a":2,"A":3}`, map[string]string{"a": "2"}},
		"escaped name":        {`{"\u0061":1}`, map[string]string{"a": "1"}},
		"name with a quote":   {`{"\"a":1,"a":2}`, map[string]string{"a": "2"}},
		"quotes in strings":   {`{"c":"\\\"}","a":"\"b\":1\\"}`, map[string]string{"a": `"\"b\":1\\"`}},
		"brackets in strings": {`{"a":["]}",{"}":"["}],"b":{"x":"]"}}`, map[string]string{"a": `["]}",{"}":"["}]`, "b": `{"x":"]"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			members, ok := rawjson.Members([]byte(c.text), "a", "b")
			if !ok {
				t.Fatal("not an object")
			}
			got := map[string]string{}
			for k, v := range members {
				got[k] = string(v)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, text := range []string{`[]`, `"{}"`, `1`, `null`, `true`} {
		if _, ok := rawjson.Members([]byte(text), "a"); ok {
			t.Errorf("%s is taken for an object", text)
		}
	}
}

func TestElements_StopEarly(t *testing.T) {
	var got []string
	for i, e := range rawjson.Elements([]byte(` [1, "a,]", [2,[3]], {"b":[4]} ,null]`)) {
		if got = append(got, string(e)); i == 3 {
			break
		}
	}
	if diff := cmp.Diff([]string{"1", `"a,]"`, "[2,[3]]", `{"b":[4]}`}, got); diff != "" {
		t.Error(diff)
	}
	for _, other := range []string{`[]`, ` [ ] `, `{}`, `{"a":1}`, `"x"`, `7`, `null`, `true`} {
		for _, e := range rawjson.Elements([]byte(other)) {
			t.Errorf("%s has the element %s", other, e)
		}
	}
}

func TestTexts(t *testing.T) {
	for text, want := range map[string]string{`"a"`: "a", ` "a\u00e9\n" `: "aé\n", `"\ud83d\udca1"`: "💡", `"\ud83d"`: "\ufffd", `"\u0000"`: "\x00", `""`: ""} {
		if got, ok := rawjson.Text([]byte(text)); !ok || got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
	if _, ok := rawjson.Text([]byte(`1`)); ok {
		t.Error("a number is taken for a string")
	}
}

// FuzzMembersAndElements holds the walk against the standard decoder: what it finds is what the
// decoder finds, of any text.
func FuzzMembersAndElements(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":[1,"x",{"a":null}]}`, ` { "a" : "\\\"" , "a" : [ ] } `, `[[],[1],{"a":"]"}]`, `{"\u0061":"\ud800"}`, `[`, `{"a"}`, "\xff", `""`,
		`{"a":{"a":{"a":[1e5,-0.0,true,false,null]}}}`, strings.Repeat("[", 100), `{"\\":1,"a\\":2,"b":3}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if rawjson.Check(text) != nil {
			return
		}
		if !json.Valid(text) {
			t.Fatal("text that is no JSON passed the check")
		}
		switch rawjson.KindOf(text) {
		case rawjson.Object:
			var want map[string]json.RawMessage
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			got, ok := rawjson.Members(text, "a", "b")
			if !ok {
				t.Fatal("an object is not taken for one")
			}
			for _, name := range []string{"a", "b"} {
				if !bytes.Equal(got[name], want[name]) {
					t.Fatalf("%s is %q, the decoder has %q", name, got[name], want[name])
				}
			}
		case rawjson.Array:
			var want, got []json.RawMessage
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			for _, e := range rawjson.Elements(text) {
				got = append(got, e)
			}
			if len(got) != len(want) {
				t.Fatalf("%d elements, the decoder has %d", len(got), len(want))
			}
			for i := range got {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("element %d is %q, the decoder has %q", i, got[i], want[i])
				}
			}
		case rawjson.String:
			var want string
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			if got, ok := rawjson.Text(text); !ok || got != want {
				t.Fatalf("text %q, the decoder has %q", got, want)
			}
		default:
			// Numbers, booleans and null are not taken apart.
		}
	})
}

func BenchmarkMembersOfABigBody(b *testing.B) {
	text := []byte(`{"content":"` + strings.Repeat(`\u0041`, 1<<20) + `","id":"x"}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := rawjson.Check(text); err != nil {
			b.Fatal(err)
		}
		if m, ok := rawjson.Members(text, "content", "id"); !ok || len(m) != 2 {
			b.Fatal("not found")
		}
	}
}
