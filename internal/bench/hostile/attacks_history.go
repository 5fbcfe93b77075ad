package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// revised is the id of the data point with many revisions.
const revised = "revised"

// revise gives one data point so many revisions.
func (a *Arena) revise(ctx context.Context, count int) error {
	const parallel = 32
	err := each(ctx, count, parallel, func(ctx context.Context, n int) error {
		_, err := a.must(ctx, http.MethodPost, "/ingest",
			map[string]any{"id": revised, "content": fmt.Sprintf("I work at the company number %d.", n)})
		return err
	})
	if err != nil {
		return err
	}
	return a.awaitSettled(ctx)
}

func prepareRevisions(ctx context.Context, a *Arena) error { return a.revise(ctx, a.Sizes.Revisions) }

// runRevisions deletes a data point with many revisions.
func runRevisions(ctx context.Context, a *Arena) error {
	if _, err := a.must(ctx, http.MethodDelete, "/data-points/"+revised, nil); err != nil {
		return err
	}
	return a.awaitSettled(ctx)
}

func prepareTraces(ctx context.Context, a *Arena) error {
	return a.revise(ctx, max(a.Sizes.Revisions/10, 1))
}

// runTraces asks for the roots, lineages and timelines of a data point with many revisions.
func runTraces(ctx context.Context, a *Arena) error {
	roots, err := a.must(ctx, http.MethodGet, "/trace/roots?query=company&first=50", nil)
	if err != nil {
		return err
	}
	ids := idsOf(roots.body)
	if len(ids) == 0 {
		return fmt.Errorf("no roots: %.300s", roots.body)
	}
	return during(ctx, a.Sizes.Hold, 32, func(ctx context.Context, n int) {
		id := ids[n%len(ids)]
		for _, path := range []string{
			"/trace/timeline/" + id + "?limit=400", "/trace/lineage/" + id + "?limit=400", "/trace/nodes/" + id,
			"/trace/roots?query=company&first=50",
		} {
			a.try(ctx, http.MethodGet, path, nil)
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
	const most = 1 << 20
	name := strings.Repeat(`\u0061`, 64)
	field := `"` + name + `":0,`
	wide := "{" + strings.Repeat(field, most/len(field)-1) + `"a":0}`
	deep := strings.Repeat(`{"a":`, most/6)
	bodies := [][]byte{[]byte(wide), []byte(deep), []byte("[" + strings.Repeat("[],", most/3-1) + "0]")}
	return during(ctx, a.Sizes.Hold, 32, func(ctx context.Context, n int) {
		for i := range bodies {
			a.post(ctx, a.Attacker.Webhook, bodies[(n+i)%len(bodies)])
		}
	})
}
