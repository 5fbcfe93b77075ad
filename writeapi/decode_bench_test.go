package writeapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/fields"
)

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
