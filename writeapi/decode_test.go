package writeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/fields"
)

// FuzzDecode decodes any body as each request. It checks that an accepted request is within every
// limit, and that a refusal is a fault of the caller.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"content":"x"}`, `{"content":" ","id":"","label":null}`, `{"items":[{"content":"x"},{"content":"x"}]}`, `{"items":[],"idempotencyKey":"k"}`,
		`{"items":[7,null,{"content":7}]}`, `{"ids":["a","a","b"]}`, `{"ids":[null]}`, `{"ids":[]}`, `{"content":"\u0000","id":"\u0000"}`,
		`{"content":"x","metadata":{"a":[1.50,null]},"timestamp":"2025-06-03T10:00Z","audience":"team","identity":"ana","idempotencyKey":"k"}`,
		`{"content":"\ud800","label":"\udfff"}`, `{"\u0063ontent":"x","content":null}`, `[]`, `"x"`, `{"items":{"0":1}}`, `{"content":"x","timestamp":"9999-12-31T23:59:60Z"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if rawjson.Check(body) != nil {
			return
		}
		if in, err := fields.Decode(body, "", singleNames, singleOf); err == nil {
			keeps(t, in.items[0])
			keepsName(t, "idempotencyKey", &in.key, 0, 200)
		} else {
			refuses(t, err)
		}
		if batch, err := fields.Decode(body, "", batchNames, batchOf); err == nil {
			if len(batch.items) < 1 || len(batch.items) > 1000 {
				t.Fatalf("%d items", len(batch.items))
			}
			ids := map[string]bool{}
			for _, in := range batch.items {
				keeps(t, in)
				id := datapoint.Digest([]byte(in.Content))
				if in.ID != nil {
					id = *in.ID
				}
				if ids[id] {
					t.Fatalf("the source id %q occurs twice", id)
				}
				ids[id] = true
			}
			keepsName(t, "idempotencyKey", &batch.key, 0, 200)
		} else {
			refuses(t, err)
		}
		if ids, err := fields.Decode(body, "", deletionNames, deletionOf); err == nil {
			seen := map[string]bool{}
			for _, id := range ids {
				keepsName(t, "ids", &id, 1, 1000)
				if seen[id] {
					t.Fatalf("the id %q occurs twice", id)
				}
				seen[id] = true
			}
			if len(ids) < 1 || len(ids) > 1000 {
				t.Fatalf("%d ids", len(ids))
			}
		} else {
			refuses(t, err)
		}
	})
}

func keeps(t *testing.T, in ingest.DataPoint) {
	t.Helper()
	if strings.TrimSpace(in.Content) == "" || !utf8.ValidString(in.Content) || len(in.Content) > 16<<20 {
		t.Fatalf("content %q", in.Content)
	}
	keepsName(t, "id", in.ID, 1, 1000)
	keepsName(t, "label", in.Label, 0, 1000)
	keepsName(t, "identity", in.Identity, 1, 200)
	if in.Audience != nil && !utf8.ValidString(*in.Audience) {
		t.Fatalf("audience %q", *in.Audience)
	}
	if in.Metadata != nil {
		if len(in.Metadata) > 1<<20 || !json.Valid(in.Metadata) {
			t.Fatalf("metadata %q", in.Metadata)
		}
		if _, err := datapoint.CanonicalMetadata(in.Metadata); err != nil {
			t.Fatalf("metadata that cannot be compared: %v", err)
		}
	}
	if at := in.Timestamp; at != nil {
		if text, err := at.MarshalJSON(); err != nil || at.Nanosecond()%1000 != 0 {
			t.Fatalf("timestamp %s: %v", text, err)
		}
	}
}

func keepsName(t *testing.T, what string, name *string, least, most int) {
	t.Helper()
	if name == nil {
		return
	}
	if n := utf8.RuneCountInString(*name); n < least || n > most || strings.ContainsRune(*name, 0) ||
		!utf8.ValidString(*name) {
		t.Fatalf("%s %q", what, *name)
	}
}

func refuses(t *testing.T, err error) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Kind != fault.Invalid && f.Kind != fault.TooLarge || f.Code == "" || f.Msg == "" {
		t.Fatalf("refused with %v", err)
	}
	if _, err := json.Marshal(f.Data); err != nil {
		t.Fatalf("data that is no JSON: %v", err)
	}
}

// BenchmarkDecode measures the decoding of sends, without the edge: of one data point, of a batch, of items that
// have fields besides those of a data point, of a body that is nothing but unknown names, and of one whose names have
// the letters of a known one.
func BenchmarkDecode(b *testing.B) {
	const point = `{"content":"%s","id":"s%d","label":"A call","metadata":{"a":1},"audience":"team","identity":"ana"%s}`
	text := strings.Repeat("Anna likes tea. ", 20)
	batch := func(extra string) string {
		items := make([]string, 500)
		for i := range items {
			items[i] = fmt.Sprintf(point, text, i, extra)
		}
		return `{"items":[` + strings.Join(items, ",") + `]}`
	}
	var unknown, anagrams strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&unknown, `,"f%06d":1`, i)
		anagrams.WriteString(`,"eduiceanx":1`)
	}
	for _, c := range []struct {
		name, body string
		batch      bool
	}{
		{"single", fmt.Sprintf(point, text, 1, ""), false},
		{"batch", batch(""), true},
		{"extras", batch(`,"kind":"email","path":"a/b.eml","bytes":320,"credits":null,"preview":"Anna likes"`), true},
		{"unknown", fmt.Sprintf(point, "x", 1, unknown.String()), false},
		{"anagrams", fmt.Sprintf(point, "x", 1, anagrams.String()), false},
	} {
		b.Run(c.name, func(b *testing.B) {
			body := []byte(c.body)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if c.batch {
					_, err = fields.Decode(body, "", batchNames, batchOf)
				} else {
					_, err = fields.Decode(body, "", singleNames, singleOf)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
