package rawjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/runtest"
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
			runtest.Must(t, json.Unmarshal(text, &want))
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
			runtest.Must(t, json.Unmarshal(text, &want))
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
			runtest.Must(t, json.Unmarshal(text, &want))
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
		runtest.Must(b, rawjson.Check(text))
		if m, ok := rawjson.Members(text, "content", "id"); !ok || len(m) != 2 {
			b.Fatal("not found")
		}
	}
}

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
