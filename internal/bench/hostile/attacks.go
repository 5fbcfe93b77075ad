// Package hostile attacks a running service over its public API, and measures the effect on a
// neighbour. Every attack has a bound in count, bytes and time.
package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/internal/hostiletest"
)

// Attack is an attack of one tenant on all others.
type Attack struct {
	Name, What string
	// Prepare stores what the attack needs, before the neighbour is observed. Nil prepares nothing.
	Prepare func(context.Context, *Arena) error
	// Run is the attack. A refusal is not an error: the attack continues or ends.
	Run func(context.Context, *Arena) error
	// Plain is what the attack is compared with: it runs before it. Nil compares with nothing.
	Plain func(context.Context, *Arena) error
	// Adds is the most memory that the attack adds to the service, and Times how many times as long as during Plain a
	// recall of the neighbour takes at most; 0 bounds neither.
	Adds  int64
	Times float64
}

// Attacks returns all attacks in the order in which they run.
func Attacks() []Attack {
	return []Attack{
		{Name: "moves", What: "move documents of 2 MiB to another audience and back", Prepare: prepareMoves, Run: runMoves},
		{Name: "deletions", What: "delete data points in bulk deletions of 1,000", Prepare: prepareDeletions, Run: runDeletions},
		{Name: "rules", What: "recompute rules of a thousand long values", Prepare: prepareRules, Run: runRules},
		{Name: "resends", What: "send one id again and again, then delete it", Run: runResends},
		{Name: "connections", What: "hold slow connections of every kind", Prepare: prepareConnections, Run: runConnections},
		{Name: "metadata", What: "recall 200 results of 1 MiB metadata, 12 at once", Prepare: prepareMetadata, Run: runMetadata},
		{Name: "traits", What: "list large traits, six slow readers", Prepare: prepareTraits, Run: runTraits},
		{Name: "puts", What: "14 PUTs of 14 MiB of traits at once", Run: runPuts},
		{Name: "keys", What: "call with unknown keys", Run: runKeys},
		{Name: "bodies", What: "send bodies that are deep, wide, or become large", Run: runBodies},
		{Name: "texts", What: "send texts that are hard to read a meaning into", Run: runTexts},
		{Name: "projects", What: "write to many projects at once", Prepare: prepareProjects, Run: runProjects},
		{Name: "tokens", What: "recall 200 results with a budget of one token", Prepare: prepareTokens, Run: runTokens},
		{Name: "estimates", What: "ask for estimates of files that nest, repeat and never end", Run: runEstimates},
		{Name: "webhook", What: "send events of 1 MiB of escaped names to 20 filters", Run: runWebhook},
		{Name: "traces", What: "trace a data point with many revisions", Prepare: prepareTraces, Run: runTraces},
		{Name: "revisions", What: "delete a data point with many revisions", Prepare: prepareRevisions, Run: runRevisions},
		{
			Name: "tools", What: "recall documents with 1 MiB of metadata by the tool, 20 at once, some of which leave",
			Prepare: prepareTools, Run: runTools, Plain: runPlainTools, Adds: toolAdds, Times: toolTimes,
		},
	}
}

// document returns a text of about size bytes. Texts of different numbers differ.
func document(n, size int) string {
	words := load.NewTexts(uint64(n)).Text(2000)
	return fmt.Sprintf("Document %d. %s", n, strings.Repeat(words+" ", size/len(words)))
}

const moved = 2 << 20

func movedDocument(n int, audience string) hostiletest.Point {
	return hostiletest.Point{ID: fmt.Sprintf("move-%d", n), Content: document(n, moved), Audience: audience}
}

func prepareMoves(ctx context.Context, a *Arena) error {
	for _, slug := range []string{"left", "right"} {
		if _, err := a.must(ctx, hostiletest.Members(slug, "walk")); err != nil {
			return err
		}
	}
	err := a.sends(ctx, a.Sizes.Moves, 2, func(n int) hostiletest.Point { return movedDocument(n, "left") })
	if err != nil {
		return err
	}
	return a.awaitSettled(ctx)
}

// runMoves moves data points to an audience one by one, and back in batches.
func runMoves(ctx context.Context, a *Arena) error {
	err := a.sends(ctx, a.Sizes.Moves, 8, func(n int) hostiletest.Point { return movedDocument(n, "right") })
	if err != nil {
		return err
	}
	const fit = 7 // in a batch of 16 MiB
	err = each(ctx, (a.Sizes.Moves+fit-1)/fit, 2, func(ctx context.Context, n int) error {
		var items []hostiletest.Point
		for i := n * fit; i < min((n+1)*fit, a.Sizes.Moves); i++ {
			items = append(items, movedDocument(i, "left"))
		}
		_, err := a.must(ctx, hostiletest.Batch(items))
		return err
	})
	if err != nil {
		return err
	}
	return a.awaitSettled(ctx)
}

const batchSize = 1000

func deletionIDs(n, count int) []string {
	return hostiletest.Numbered("delete", n*batchSize, min((n+1)*batchSize, count))
}

// short sends so many short texts.
func (a *Arena) short(ctx context.Context, count int) error {
	err := each(ctx, (count+batchSize-1)/batchSize, 2, func(ctx context.Context, n int) error {
		texts := load.NewTexts(uint64(n) + 50)
		var items []hostiletest.Point
		for _, id := range deletionIDs(n, count) {
			items = append(items, hostiletest.Point{ID: id, Content: texts.Text(20)})
		}
		_, err := a.must(ctx, hostiletest.Batch(items))
		return err
	})
	if err != nil {
		return err
	}
	return a.awaitSettled(ctx)
}

func prepareDeletions(ctx context.Context, a *Arena) error { return a.short(ctx, a.Sizes.Deletions) }

func runDeletions(ctx context.Context, a *Arena) error {
	err := each(ctx, (a.Sizes.Deletions+batchSize-1)/batchSize, 4, func(ctx context.Context, n int) error {
		for range 20 { // the try after an unanswered deletion finds nothing
			r := a.try(ctx, hostiletest.Deletion(deletionIDs(n, a.Sizes.Deletions)))
			if r.status == http.StatusAccepted || r.status == http.StatusNotFound {
				return nil
			}
			if err := backoff.Pause(ctx, max(r.wait, probeEvery), nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.awaitSettled(ctx)
}

func remove(id string) hostiletest.Request {
	return hostiletest.Request{Method: http.MethodDelete, Path: "/data-points/" + id}
}

// runResends sends one id: half of the times unchanged, half of the times with another content.
func runResends(ctx context.Context, a *Arena) error {
	const parallel = 32
	for _, contents := range [][]string{{"I like tea."}, {"I like coffee.", "I like water."}} {
		err := each(ctx, parallel, parallel, func(ctx context.Context, worker int) error {
			for n := range a.Sizes.Resends / 2 / parallel {
				r := a.try(ctx, hostiletest.Send(hostiletest.Point{ID: "one", Content: contents[(n+worker)%len(contents)]}))
				if r.status >= 500 || r.status == 0 {
					if err := backoff.Pause(ctx, max(r.wait, probeEvery), nil); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if _, err := a.must(ctx, remove("one")); err != nil {
		return err
	}
	return a.awaitSettled(ctx)
}

// runTexts sends texts one by one, in batches, and some as one long text.
func runTexts(ctx context.Context, a *Arena) error {
	rng := rand.New(rand.NewPCG(20261122, 1))
	texts := make([]string, a.Sizes.Texts)
	for n := range texts {
		texts[n] = hostiletest.Text(rng)
	}
	err := each(ctx, len(texts)/2, 8, func(ctx context.Context, n int) error {
		a.try(ctx, hostiletest.Send(hostiletest.Point{Content: texts[n]}))
		return nil
	})
	if err != nil {
		return err
	}
	var items []hostiletest.Point
	for n, text := range texts[len(texts)/2:] {
		if strings.TrimSpace(text) != "" {
			items = append(items, hostiletest.Point{ID: fmt.Sprintf("text-%d", n), Content: text})
		}
	}
	for len(items) > 0 {
		part := items[:min(batchSize, len(items))]
		items = items[len(part):]
		a.try(ctx, hostiletest.Batch(part))
	}
	long := strings.Join(texts, " ")
	for n := range 4 {
		a.try(ctx, hostiletest.Send(hostiletest.Point{ID: fmt.Sprintf("long-%d", n), Content: long[:min(len(long), 1<<20)]}))
	}
	return a.awaitSettled(ctx)
}
