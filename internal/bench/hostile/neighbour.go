package hostile

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/internal/hostiletest"
)

// The calls of a neighbour.
const (
	probeEvery = 25 * time.Millisecond
	// recallLimit is how long the neighbour waits for a text to be recalled. A slower one counts as that long.
	recallLimit = time.Minute
)

// Noticed is the effect of an attack on a neighbour.
type Noticed struct {
	// Searchable are the times from the first try to send a text until it was recalled. Recall are
	// those of answered recalls.
	Searchable, Recall load.Times
}

// Neighbour sends one data point at a time and recalls it, until the context ends. answers counts
// the responses.
func Neighbour(ctx context.Context, base string, tenant Tenant, answers *Answers) Noticed {
	a := NewArena(base, tenant, Sizes{})
	a.Answers = answers
	defer a.Close()
	var noticed Noticed
	texts := load.NewTexts(uint64(time.Now().UnixNano()))
	for n := 0; ctx.Err() == nil; n++ {
		took, ok := a.probe(ctx, fmt.Sprintf("probe-%d", n), texts, &noticed.Recall)
		if ok || took >= recallLimit || ctx.Err() == nil {
			noticed.Searchable = append(noticed.Searchable, took)
		}
	}
	return noticed
}

// probe sends a text with a unique word, and recalls the word until it finds the text. ok is false
// if it never does.
func (a *Arena) probe(
	ctx context.Context, id string, texts *load.Texts, recalls *load.Times,
) (took time.Duration, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, recallLimit)
	defer cancel()
	word := texts.Rare()
	began := time.Now()
	text := hostiletest.Point{ID: id, Content: texts.Text(20) + " " + word, Identity: "neighbour"}
	if _, err := a.must(ctx, hostiletest.Send(text)); err != nil {
		return time.Since(began), false
	}
	for {
		asked := time.Now()
		r := a.try(ctx, post("/recall", map[string]any{"query": word, "identity": "neighbour", "limit": 10}))
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

// Settle sends a few texts of a neighbour to recall from, and waits until they are derived.
func Settle(ctx context.Context, base string, tenant Tenant) error {
	a := NewArena(base, tenant, Sizes{})
	defer a.Close()
	texts := load.NewTexts(11)
	items := make([]hostiletest.Point, 500)
	for n := range items {
		items[n] = hostiletest.Point{ID: fmt.Sprintf("text-%d", n), Content: texts.Text(20), Identity: "neighbour"}
	}
	if _, err := a.must(ctx, hostiletest.Batch(items)); err != nil {
		return err
	}
	return a.awaitSettled(ctx)
}
