package hostile

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/bench/load"
)

// The calls of a neighbour.
const (
	probeEvery = 25 * time.Millisecond
	// giveUp is how long the neighbour waits for a text to be recalled; one that takes longer counts as that long.
	giveUp = time.Minute
)

// Noticed is what a neighbour noticed of an attack.
type Noticed struct {
	// Searchable are the times from the first try to send a text until it was recalled, Recall those
	// of recalls that were answered.
	Searchable, Recall load.Times
}

// Neighbour sends one data point at a time and recalls it until the context ends. answers counts what it was answered.
func Neighbour(ctx context.Context, base string, tenant Tenant, answers *Answers) Noticed {
	a := NewArena(base, tenant, Sizes{})
	a.Answers = answers
	defer a.Close()
	var noticed Noticed
	texts := load.NewTexts(uint64(time.Now().UnixNano()))
	for n := 0; ctx.Err() == nil; n++ {
		took, ok := a.probe(ctx, fmt.Sprintf("probe-%d", n), texts, &noticed.Recall)
		if ok || took >= giveUp || ctx.Err() == nil {
			noticed.Searchable = append(noticed.Searchable, took)
		}
	}
	return noticed
}

// probe sends a text with a word that no other holds, and asks for the word until it is recalled.
// ok is false where it never was.
func (a *Arena) probe(
	ctx context.Context, id string, texts *load.Texts, recalls *load.Times,
) (took time.Duration, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	word := texts.Rare()
	began := time.Now()
	if _, err := a.must(
		ctx, http.MethodPost, "/ingest",
		map[string]any{"id": id, "content": texts.Text(20) + " " + word, "identity": "neighbour"},
	); err != nil {
		return time.Since(began), false
	}
	for {
		asked := time.Now()
		r := a.try(ctx, http.MethodPost, "/recall", map[string]any{"query": word, "identity": "neighbour", "limit": 10})
		if r.status == http.StatusOK {
			*recalls = append(*recalls, time.Since(asked))
			if bytes.Contains(r.body, []byte(word)) {
				return time.Since(began), true
			}
		}
		if backoff.Pause(ctx, probeEvery, nil) != nil {
			return time.Since(began), false
		}
	}
}

// Settle gives a neighbour a few texts to recall from, and waits until they are derived.
func Settle(ctx context.Context, base string, tenant Tenant) error {
	a := NewArena(base, tenant, Sizes{})
	defer a.Close()
	texts := load.NewTexts(11)
	items := make([]any, 500)
	for n := range items {
		items[n] = map[string]any{"id": fmt.Sprintf("text-%d", n), "content": texts.Text(20), "identity": "neighbour"}
	}
	if _, err := a.must(ctx, http.MethodPost, "/ingest/batch", map[string]any{"items": items}); err != nil {
		return err
	}
	return a.settle(ctx)
}
