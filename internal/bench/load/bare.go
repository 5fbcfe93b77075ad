package load

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Bare are the speeds of the parts alone, from the output of the Go benchmarks that ran just
// before.
type Bare struct {
	// Appends is how many appends a second the event store accepts from 32 callers.
	Appends float64
	// Query is how long the index takes for one query over as many passages, in milliseconds.
	Query float64
}

// The benchmarks that are read, with the unit that counts.
var bareLines = []struct {
	name *regexp.Regexp
	unit string
	set  func(*Bare, float64)
}{
	{regexp.MustCompile(`^BenchmarkAppend/callers=32(-\d+)?$`), "calls/s", func(b *Bare, v float64) { b.Appends = v }},
	{regexp.MustCompile(`^BenchmarkEngineQuery(-\d+)?$`), "ns/op", func(b *Bare, v float64) { b.Query = v / 1e6 }},
}

// ReadBare reads the output of go test -bench. Missing values stay 0.
func ReadBare(r io.Reader) (Bare, error) {
	var b Bare
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		for _, want := range bareLines {
			if len(fields) < 4 || !want.name.MatchString(fields[0]) {
				continue
			}
			for i := 3; i < len(fields); i += 2 {
				if fields[i] != want.unit {
					continue
				}
				v, err := strconv.ParseFloat(fields[i-1], 64)
				if err != nil {
					return Bare{}, fmt.Errorf("benchmark %s: %w", fields[0], err)
				}
				want.set(&b, v)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return Bare{}, fmt.Errorf("read benchmarks: %w", err)
	}
	return b, nil
}
