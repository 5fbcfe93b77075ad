package recall_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// updatePairs are files of pairs of texts of which the later replaces the earlier, and the least share of them that
// must be in order. Each describes its format.
var updatePairs = map[string]float64{
	"testdata/updates.txt": 0.98, "testdata/updates_freely.txt": 0.95, "testdata/updates_longer.txt": 0.87,
	"testdata/updates_chats.txt": 0.9, "testdata/updates_news.txt": 0.8,
}

// updatePair holds two statements of one speaker on one thing.
type updatePair struct{ speaker, earlier, later, question string }

// TestUpdatePairs guards that the current text stands above the one that it replaces, with all pairs of a file in one
// project.
func TestUpdatePairs(t *testing.T) {
	for file, least := range updatePairs {
		t.Run(file, func(t *testing.T) { testUpdatePairs(t, readUpdatePairs(t, file), least) })
	}
}

func testUpdatePairs(t *testing.T, pairs []updatePair, least float64) {
	h := recalltest.New(t, nil)
	claims := sendPairs(h, pairs)
	h.CatchUp()
	inOrder := 0
	for i, p := range pairs {
		q := h.Ask(p.question)
		q.Identity = p.speaker
		page := h.Recall(q)
		earlier, later := placeOfSource(page, pairID(0, i)), placeOfSource(page, pairID(1, i))
		if later < earlier {
			inOrder++
			continue
		}
		t.Logf("%s: result %d %q, result %d %q; claims %v and %v", p.question, later, p.later, earlier, p.earlier,
			claims[pairID(1, i)], claims[pairID(0, i)])
	}
	share := float64(inOrder) / float64(len(pairs))
	t.Logf("%d of %d pairs (%.2f) are in order", inOrder, len(pairs), share)
	if share < least {
		t.Errorf("%.2f of the pairs are in order, below %.2f", share, least)
	}
}

// sendPairs sends all earlier texts and then all later ones. It returns what the claims of each text are about.
func sendPairs(h *recalltest.Harness, pairs []updatePair) map[string][]claimKey {
	claims := map[string][]claimKey{}
	start := time.Date(2025, 3, 1, 9, 0, 0, 0, time.UTC)
	for n := range 2 {
		for i, p := range pairs {
			claims[pairID(n, i)] = sendText(h, recalltest.DataPoint{
				ID: pairID(n, i), Content: []string{p.earlier, p.later}[n], Author: p.speaker,
				OccurredAt: start.AddDate(0, n, 0).Add(time.Duration(i) * time.Minute),
			})
		}
	}
	return claims
}

// pairID is the source id of the text n (0 or 1) of pair i.
func pairID(n, i int) string { return fmt.Sprintf("pair-%d-%d", i, n) }

// placeOfSource returns the index of the first result from a source, MaxInt if there is none.
func placeOfSource(page recall.Response, id string) int {
	at := slices.IndexFunc(page.Results, func(r recall.Result) bool { return r.Sources[0].SourceID == id })
	if at < 0 {
		return math.MaxInt
	}
	return at
}

func readUpdatePairs(t *testing.T, file string) (pairs []updatePair) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, " | ")
		if len(fields) != 4 {
			t.Fatalf("%q has %d fields, want 4", line, len(fields))
		}
		pairs = append(pairs, updatePair{fields[0], fields[1], fields[2], fields[3]})
	}
	return pairs
}
