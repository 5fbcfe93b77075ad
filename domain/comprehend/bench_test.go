package comprehend_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/comprehend"
)

// heavy are contents of the largest size a client may send, each against a different part of the
// grammar.
func heavy(size int) map[string]string {
	fill := func(unit string) string { return strings.Repeat(unit, size/len(unit)+1)[:size] }
	return map[string]string{
		"prose":        fill("Ana moved the launch to 3 June 2025 and Bo likes tea. We met next Tuesday, didn't we? I love my dog Rex. "),
		"lines":        fill("Ana: I went to Rome last week with Bo.\nBo: My favourite city is Lisbon!\n"),
		"numbers":      fill("1. "),
		"dots":         fill("."),
		"one word":     fill("a"),
		"hyphens":      fill("a-"),
		"newlines":     fill("\n"),
		"quotes":       fill("' \" "),
		"initials":     fill("Dr. A. "),
		"wrapped":      fill("this line goes on and on without an end of a sentence\nand it is wrapped "),
		"colons":       fill("Ana Bo Cy: "),
		"speakers":     fill("Ab: x\nCd: y\n"),
		"nul":          fill("\x00"),
		"invalid":      fill("\xff\xfe a. "),
		"ideographs":   fill("我喜欢茶。"),
		"no sentences": fill("word "),
	}
}

// The largest content that a client may send is read within seconds, whatever it holds.
func TestExtract_LargestContent(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 16 MiB many times")
	}
	texts := heavy(4 << 20)
	texts["largest"] = heavy(16 << 20)["lines"]
	for name, content := range texts {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			got := comprehend.Extract(comprehend.Input{
				DataPoint: dataPoint, Revision: 1, Content: content, Author: "Ana",
				OccurredAt: monday,
			})
			took := time.Since(start)
			t.Logf("%d memories in %v", len(got), took)
			if len(got) > comprehend.MaxMemories {
				t.Errorf("%d memories", len(got))
			}
			if took > 10*time.Minute { // seconds in practice; the room is for busy machines
				t.Errorf("took %v", took)
			}
		})
	}
}

func BenchmarkExtract(b *testing.B) {
	for _, size := range []int{200, 10 << 10, 1 << 20} {
		content := heavy(size)["prose"]
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				comprehend.Extract(comprehend.Input{
					DataPoint: dataPoint, Revision: 1, Content: content, Author: "Ana",
					OccurredAt: monday,
				})
			}
		})
	}
}
