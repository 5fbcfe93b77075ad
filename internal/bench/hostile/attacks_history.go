package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/annals-project/annals/internal/hostiletest"
)

// revised is the id of the data point with many revisions.
const revised = "revised"

// revise gives one data point so many revisions.
func (a *Arena) revise(ctx context.Context, count int) error {
	const parallel = 32
	err := a.sends(ctx, count, parallel, func(n int) hostiletest.Point {
		return hostiletest.Point{ID: revised, Content: fmt.Sprintf("I work at the company number %d.", n)}
	})
	if err != nil {
		return err
	}
	return a.awaitSettled(ctx)
}

func prepareRevisions(ctx context.Context, a *Arena) error { return a.revise(ctx, a.Sizes.Revisions) }

// runRevisions deletes a data point with many revisions.
func runRevisions(ctx context.Context, a *Arena) error {
	if _, err := a.must(ctx, remove(revised)); err != nil {
		return err
	}
	return a.awaitSettled(ctx)
}

func prepareTraces(ctx context.Context, a *Arena) error {
	return a.revise(ctx, max(a.Sizes.Revisions/10, 1))
}

// runTraces asks for the roots, lineages and timelines of a data point with many revisions.
func runTraces(ctx context.Context, a *Arena) error {
	roots, err := a.must(ctx, get("/trace/roots?query=company&first=50"))
	if err != nil {
		return err
	}
	ids := idsOf(roots.body)
	if len(ids) == 0 {
		return fmt.Errorf("no roots: %.300s", roots.body)
	}
	return during(ctx, a.Sizes.Hold, 32, func(ctx context.Context, n int) {
		for _, read := range hostiletest.Reads(ids[n%len(ids)]) {
			a.try(ctx, read)
		}
	})
}

// idsOf returns the values of all fields "id" in a JSON text, at most 200.
func idsOf(body []byte) (ids []string) {
	dec := json.NewDecoder(bytes.NewReader(body))
	last := ""
	for len(ids) < 200 {
		token, err := dec.Token()
		if err != nil {
			return ids
		}
		text, _ := token.(string)
		if last == "id" && text != "" {
			ids = append(ids, text)
		}
		last = text
	}
	return ids
}

// runWebhook sends events of the largest size whose names are escaped, and do not lead where the
// filters of the webhook look.
func runWebhook(ctx context.Context, a *Arena) error {
	bodies := hostiletest.Events(1 << 20)
	return during(ctx, a.Sizes.Hold, 32, func(ctx context.Context, n int) {
		for i := range bodies {
			a.post(ctx, a.Attacker.Webhook, bodies[(n+i)%len(bodies)])
		}
	})
}
