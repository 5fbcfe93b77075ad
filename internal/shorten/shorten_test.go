package shorten_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/internal/shorten"
)

// limits shorten every answer.
var limits = shorten.Limits{Whole: 0, Most: 1 << 20, Text: 5, Value: 12, Entries: 2}

// write writes an answer in parts of some bytes.
func write(t *testing.T, limits shorten.Limits, answer string, part int) *shorten.Writer {
	t.Helper()
	w := shorten.New(t.Context(), limits)
	for rest := answer; rest != ""; rest = rest[min(len(rest), part):] {
		if _, err := w.Write([]byte(rest[:min(len(rest), part)])); err != nil {
			t.Fatalf("%.200s in parts of %d: %v", answer, part, err)
		}
	}
	return w
}

func TestWriter(t *testing.T) {
	small := limits
	small.Most = 60
	for _, c := range []struct {
		name, answer, want string
		limits             shorten.Limits
		left               map[string]int
	}{
		{"nothing to shorten", `{"a":1,"b":[true,null,{"c":"d"}],"e":{}}`, `{"a":1,"b":[true,null,{"c":"d"}],"e":{}}`, limits, nil},
		{"white space", " { \"a\" : [ 1 , 2.5e3 ] }\n", `{"a":[1,2.5e3]}`, limits, nil},
		{"a text at the limit", `{"a":"12345"}`, `{"a":"12345"}`, limits, nil},
		{"a text over it", `{"a":"123456"}`, `{"a":"1234…"}`, limits, map[string]int{"characters of a": 2}},
		{
			"characters are not bytes", `{"a":"ééééé","b":"éééééé","c":"\n\u003c\"\\x\""}`, `{"a":"ééééé","b":"éééé…","c":"\n\u003c\"\\…"}`,
			limits,
			map[string]int{"characters of b": 2, "characters of c": 2},
		},
		{
			"metadata of each kind",
			`{"m":[{"metadata":{"a":[1,1,1,1]}},{"metadata":[1,1,1,1,1,1]}],"n":{"metadata":"123456789ab","traits":"123456789"},"o":{"traits":{"a":"}"}}}`,
			`{"m":[{"metadata":{}},{"metadata":[]}],"n":{"metadata":"","traits":"123456789"},"o":{"traits":{"a":"}"}}}`,
			limits,
			map[string]int{"metadata": 3},
		},
		{
			"metadata that looks like an end", `{"a":{"metadata":{"x\"}":"]}\\"}},"b":1}`, `{"a":{"metadata":{}},"b":1}`, limits,
			map[string]int{"metadata": 1},
		},
		{"metadata that is a number", `{"metadata":12,"traits":null}`, `{"metadata":12,"traits":null}`, limits, nil},
		{"a list within an entry", `{"r":[{"s":[1,2,{"x":[]},4]},2,3]}`, `{"r":[{"s":[1,2]},2,3]}`, limits, map[string]int{"s": 2}},
		{
			"entries without room", `{"a":{"r":[{"id":"1","x":"1234","y":"1234"},{"id":"2","x":"1234","y":"1234"},{"id":"3"}]},"more":true}`,
			`{"a":{"r":[{"id":"1","x":"1234","y":"1234"}]},"more":true}`, small,
			map[string]int{"a.r": 2},
		},
		{
			"the first entry has none", `{"r":[{"x":{"y":[{"z":"` + strings.Repeat(`1","a":"`, 20) + `"}]}},7],"more":"x"}`, `{"r":[],"more":"x"}`, small,
			map[string]int{"r": 2},
		},
	} {
		for _, part := range []int{1, 2, 3, 7, len(c.answer)} {
			w := write(t, c.limits, c.answer, part)
			if got := string(w.Bytes()); got != c.want || !maps.Equal(w.LeftOut(), c.left) {
				t.Errorf("%s in parts of %d: %s without %v, want %s without %v", c.name, part, got, w.LeftOut(), c.want, c.left)
			}
		}
	}
}

// An answer that fits stays byte for byte.
func TestWriter_Whole(t *testing.T) {
	whole := limits
	whole.Whole = 20
	for answer, want := range map[string]string{`{"a": "123456789ab"}`: `{"a": "123456789ab"}`, `{"a": "123456789abc"}`: `{"a":"1234…"}`} {
		if w := write(t, whole, answer, 6); string(w.Bytes()) != want {
			t.Errorf("%s: %s", answer, w.Bytes())
		}
	}
}

// Any JSON stays JSON, and without limits what it is.
func TestWriter_AnyJSON(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 2000 {
		answer, err := json.Marshal(map[string]any{"a": anyValue(rng, 5), "b": anyValue(rng, 3)})
		if err != nil {
			t.Fatal(err)
		}
		loose := shorten.Limits{Most: 1 << 20, Text: 1 << 20, Value: 1 << 20, Entries: 1 << 20}
		part := 1 + rng.IntN(9)
		if w := write(t, loose, string(answer), part); string(w.Bytes()) != string(answer) || len(w.LeftOut()) > 0 {
			t.Fatalf("%s became %s without %v", answer, w.Bytes(), w.LeftOut())
		}
		tight := shorten.Limits{Most: rng.IntN(200), Text: 1 + rng.IntN(4), Value: 1 + rng.IntN(9), Entries: rng.IntN(3)}
		if w := write(t, tight, string(answer), part); !json.Valid(w.Bytes()) {
			t.Fatalf("%s became %s", answer, w.Bytes())
		}
	}
}

func anyValue(rng *rand.Rand, depth int) any {
	names := []string{"metadata", "traits", "a", "b\"", "é"}
	switch kind := rng.IntN(7); {
	case kind < 2 && depth > 0:
		o := map[string]any{}
		for range rng.IntN(4) {
			o[names[rng.IntN(len(names))]] = anyValue(rng, depth-1)
		}
		return o
	case kind < 4 && depth > 0:
		list := []any{}
		for range rng.IntN(4) {
			list = append(list, anyValue(rng, depth-1))
		}
		return list
	case kind == 4:
		return rng.IntN(1000) - 500
	case kind == 5:
		return []any{nil, true, false}[rng.IntN(3)]
	default:
		return []string{"", "x", "\"]}", "\\", "é\u2028<>", "[{", "123456789"}[rng.IntN(7)]
	}
}

// However much is dropped, little is held: 200 MiB of metadata pass through less than 2 MiB.
func TestWriter_Memory(t *testing.T) {
	entry := []byte(`{"id":"x","content":"the text","metadata":{"a":[` + strings.Repeat("[],", (1<<20)/3) + `0]}}`)
	w := shorten.New(t.Context(), shorten.Limits{Whole: 200_000, Most: 1 << 20, Text: 8000, Value: 2000, Entries: 50})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const entries = 200
	for n := range entries {
		begin := []byte(`,`)
		if n == 0 {
			begin = []byte(`{"results":[`)
		}
		for _, part := range [][]byte{begin, entry} {
			if _, err := w.Write(part); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := w.Write([]byte("]}")); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20 {
		t.Errorf("%d bytes are allocated", got)
	}
	if n := strings.Count(string(w.Bytes()), `"content":"the text"`); n != entries {
		t.Errorf("%d texts are left", n)
	}
	if diff := cmp.Diff(map[string]int{"metadata": entries}, w.LeftOut()); diff != "" {
		t.Error(diff)
	}
}

func TestWriter_Ends(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	w := shorten.New(ctx, limits)
	if _, err := w.Write([]byte(`{"a":[`)); err != nil {
		t.Fatal(err)
	}
	leave()
	if _, err := w.Write([]byte(`1`)); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller left: %v", err)
	}
	long := shorten.New(t.Context(), shorten.Limits{Most: 10, Text: 1 << 20, Value: 1, Entries: 1})
	if _, err := long.Write([]byte(`{"a":"` + strings.Repeat("x", 100<<10))); !errors.Is(err, shorten.ErrLong) {
		t.Errorf("a long text in no list: %v", err)
	}
	if _, err := shorten.New(t.Context(), limits).Write([]byte(`]`)); err == nil {
		t.Error("no JSON")
	}
}
