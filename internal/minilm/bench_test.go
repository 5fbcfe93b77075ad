package minilm

import (
	"fmt"
	"strings"
	"testing"
)

func BenchmarkEmbed(b *testing.B) {
	m := openModel(b)
	for _, tokens := range []int{12, 32, 128, 256} {
		text := strings.Repeat("harbor ", tokens-2)
		if n := len(m.tok.encode(nil, text)); n != tokens {
			b.Fatalf("%d tokens, want %d", n, tokens)
		}
		b.Run(fmt.Sprintf("tokens=%d", tokens), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Embed(b.Context(), text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
