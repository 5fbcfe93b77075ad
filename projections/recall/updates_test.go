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

// The least shares of pairs that must be in order: of updates by file, and of parallel facts. Only an update whose
// claim supersedes another one is put in order. With rules that ordered free texts by their time, also parallel facts,
// the least shares of updates were .98, .95, .87, .90 and .80.
const (
	leastUpdates       = 0.68
	leastUpdatesFreely = 0.18
	leastUpdatesLonger = 0.15
	leastUpdatesChats  = 0.15
	leastUpdatesNews   = 0.13
	leastParallel      = 0.99
)

// updatePairs are files of pairs of texts of which the later replaces the earlier. Each describes its format.
var updatePairs = map[string]float64{
	"testdata/updates.txt": leastUpdates, "testdata/updates_freely.txt": leastUpdatesFreely,
	"testdata/updates_longer.txt": leastUpdatesLonger, "testdata/updates_chats.txt": leastUpdatesChats,
	"testdata/updates_news.txt": leastUpdatesNews,
}

// parallelPairs is a file of pairs of texts about two things, at least as many as there are updates: a rule that orders
// updates must not order them.
const parallelPairs = "testdata/parallel.txt"

// updatePair holds two statements of one speaker on one thing.
type updatePair struct{ speaker, earlier, later, question string }

// TestUpdatePairs guards that the current text stands above the one that it replaces, with all pairs of a file in one
// project, and that a fact is first if a question asks for it, however many facts of its shape are later.
func TestUpdatePairs(t *testing.T) {
	if testing.Short() {
		t.Skip("it is about ranks, one question after the other")
	}
	t.Run("order", func(t *testing.T) {
		for file, least := range updatePairs {
			t.Run(file, func(t *testing.T) {
				t.Parallel()
				testUpdatePairs(t, readUpdatePairs(t, file), least)
			})
		}
		t.Run(parallelPairs, testParallelPairs)
	})
	updates := 0
	for file := range updatePairs {
		updates += len(readUpdatePairs(t, file))
	}
	if parallel := len(readPairs(t, parallelPairs, 5)); parallel < updates {
		t.Errorf("%d parallel pairs for %d updates", parallel, updates)
	}
}

// testParallelPairs asks for both facts of each pair.
func testParallelPairs(t *testing.T) {
	t.Parallel()
	h := recalltest.New(t, nil)
	rows := readPairs(t, parallelPairs, 5)
	var pairs []updatePair
	for _, row := range rows {
		pairs = append(pairs, updatePair{speaker: row[0], earlier: row[1], later: row[2]})
	}
	sendPairs(h, pairs)
	h.CatchUp()
	first := 0
	for i, row := range rows {
		for n := range 2 {
			q := h.Ask(row[3+n])
			q.Identity = row[0]
			page := h.Recall(q)
			place := placeOfSource(page, pairID(n, i))
			if place == 0 {
				first++
				continue
			}
			got := "nothing"
			if len(page.Results) > 0 {
				got = page.Results[0].Content
			}
			t.Logf("%s: result %d %q, first is %q", row[3+n], place, row[1+n], got)
		}
	}
	share := float64(first) / float64(2*len(rows))
	t.Logf("%d of %d facts (%.3f) are first", first, 2*len(rows), share)
	if share < leastParallel {
		t.Errorf("%.3f of the facts are first, below %.3f", share, leastParallel)
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
	for _, row := range readPairs(t, file, 4) {
		pairs = append(pairs, updatePair{row[0], row[1], row[2], row[3]})
	}
	return pairs
}

// readPairs returns the fields of each line of a file.
func readPairs(t *testing.T, file string, fields int) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
			continue
		}
		row := strings.Split(line, " | ")
		if len(row) != fields {
			t.Fatalf("%q has %d fields, want %d", line, len(row), fields)
		}
		rows = append(rows, row)
	}
	return rows
}
