package estimate_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/limit"
)

// anyText returns a text of up to so many characters of one to four bytes, some of which no id or label has.
func anyText(rng *rand.Rand, most int) string {
	var b strings.Builder
	for range rng.IntN(most + 1) {
		b.WriteString([]string{"a", "é", "ß", "\U0001F375", "a", "a", "a", "a", " ", "-", "\x00", "\n"}[rng.IntN(8+4*rng.IntN(2))])
	}
	return b.String()
}

// The ids and labels of a file are those that each of them has by itself.
func TestPaths_IDsAndLabels(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 3))
	for range 300 {
		path := anyText(rng, limit.EstimatePath)
		of, label := estimate.IDs(path), estimate.Labels()
		for range 10 {
			name := anyText(rng, []int{3, 40, 2000}[rng.IntN(3)])
			if got, want := of(name), estimate.FitID(path+name); got != want {
				t.Fatalf("%q and %q: %q, want %q", path, name, got, want)
			}
			if got, want := label(path, name), estimate.FitName(path+name, limit.Label); got != want {
				t.Fatalf("%q and %q: %q, want %q", path, name, got, want)
			}
		}
	}
}

// A hash of texts that begin alike depends on the text alone, whichever came before.
func TestPrefixed_Sum(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 4))
	begins := []string{"", "a", strings.Repeat("path/", 300), strings.Repeat("path/", 300) + strings.Repeat("b", 900), strings.Repeat("c", 700)}
	var p estimate.Prefixed
	for range 5000 {
		text := begins[rng.IntN(len(begins))] + anyText(rng, 20)
		if want := sha256.Sum256([]byte(text)); !bytes.Equal(p.Sum(text), want[:]) {
			t.Fatalf("another hash of %q", text)
		}
	}
}

// What the rows of a file have in common is hashed once: 50,000 rows under the longest path hashed it 150,000 times.
func TestPrefixed_HashesThePathOnce(t *testing.T) {
	var p estimate.Prefixed
	for _, path := range []string{strings.Repeat("a", 4000), strings.Repeat("b", 3000)} { // of two files
		for n := range 1000 {
			p.Sum(fmt.Sprintf("%s#%d", path, n))
			if n >= 2 && p.Known() < len(path) {
				t.Fatalf("row %d hashes %d bytes again", n, len(path)-p.Known())
			}
		}
	}
}
