package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/annals-project/annals/eventstore/backoff"
)

const ruledTraits = 20

// prepareRules creates identities with traits, and rules over them: with the longest values, if
// the project may have as many of them, else with shorter ones.
func prepareRules(ctx context.Context, a *Arena) error {
	err := each(ctx, (a.Sizes.Identities+batchSize-1)/batchSize, 1, func(ctx context.Context, n int) error {
		var rows []any
		for i := n * batchSize; i < min((n+1)*batchSize, a.Sizes.Identities); i++ {
			traits := map[string]string{}
			for t := range ruledTraits {
				traits[fmt.Sprintf("trait-%d", t)] = strings.Repeat("v", 40) + fmt.Sprint(i%997)
			}
			rows = append(rows, map[string]any{"identity": fmt.Sprintf("person-%d", i), "traits": traits})
		}
		_, err := a.must(ctx, http.MethodPost, "/identities/bulk", rows)
		return err
	})
	if err != nil {
		return err
	}
	return each(ctx, a.Sizes.Rules, 1, func(ctx context.Context, n int) error {
		for _, length := range []int{1900, 480, 100} {
			r := a.try(ctx, http.MethodPut, fmt.Sprintf("/audiences/rule-%d", n),
				map[string]any{"kind": "rule", "rule": rule(n, length)})
			if r.status == http.StatusOK || r.status == http.StatusCreated {
				break
			}
			if r.status == http.StatusServiceUnavailable {
				if err := backoff.Pause(ctx, max(r.wait, probeEvery), nil); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	})
}

// rule returns a rule with the most conditions and values.
func rule(n, length int) map[string]any {
	conditions := make([]any, ruledTraits)
	for c := range conditions {
		values := make([]string, 50)
		for v := range values {
			values[v] = strings.Repeat("v", length) + fmt.Sprint(n*1000+v)
		}
		conditions[c] = map[string]any{"trait": fmt.Sprintf("trait-%d", c), "operator": "is_one_of", "values": values}
	}
	return map[string]any{"match": "any", "conditions": conditions}
}

// runRules recomputes every rule while it changes identities.
func runRules(ctx context.Context, a *Arena) error {
	for range 3 {
		err := each(ctx, a.Sizes.Rules, 6, func(ctx context.Context, n int) error {
			a.try(ctx, http.MethodPost, fmt.Sprintf("/audiences/rule-%d/recompute", n), nil)
			a.try(ctx, http.MethodPatch, fmt.Sprintf("/identities/person-%d", n),
				map[string]any{"traits": map[string]string{"trait-0": fmt.Sprint(n)}})
			a.try(ctx, http.MethodPost, "/recall", map[string]any{"query": "tea", "identity": fmt.Sprintf("person-%d", n)})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// traitsOf returns count traits of the longest value.
func traitsOf(count int) map[string]any {
	traits := make(map[string]string, count)
	for n := range count {
		traits[fmt.Sprintf("key-%d", n)] = strings.Repeat("v", 1990)
	}
	return map[string]any{"traits": traits}
}

const (
	// hugeTraits are 14 MiB, largeTraits a bit less than 512 KiB.
	hugeTraits  = 7300
	largeTraits = 260
)

func prepareTraits(ctx context.Context, a *Arena) error {
	size, count := hugeTraits, max(a.Sizes.Traits/12, 1)
	r := a.try(ctx, http.MethodPut, "/identities/large-0", traitsOf(size))
	if r.status == http.StatusBadRequest || r.status == http.StatusRequestEntityTooLarge {
		size, count = largeTraits, a.Sizes.Traits
	}
	body, err := json.Marshal(traitsOf(size))
	if err != nil {
		return fmt.Errorf("encode traits: %w", err)
	}
	return each(ctx, count, 2, func(ctx context.Context, n int) error {
		_, err := a.must(ctx, http.MethodPut, fmt.Sprintf("/identities/large-%d", n), body)
		return err
	})
}

// runTraits lists identities with six slow readers and two fast ones.
func runTraits(ctx context.Context, a *Arena) error {
	const slow, quick = 6, 2
	return each(ctx, slow+quick, slow+quick, func(ctx context.Context, n int) error {
		if n < slow {
			return a.readSlowly(ctx, http.MethodGet, "/identities?limit=1000", nil, 256<<10, a.Sizes.Hold)
		}
		return during(ctx, a.Sizes.Hold, 1, func(ctx context.Context, _ int) {
			a.try(ctx, http.MethodGet, "/identities?limit=1000", nil)
		})
	})
}

// runPuts puts as many traits at once as a body holds, then as many as are allowed.
func runPuts(ctx context.Context, a *Arena) error {
	for _, size := range []int{hugeTraits, largeTraits} {
		body, err := json.Marshal(traitsOf(size))
		if err != nil {
			return fmt.Errorf("encode traits: %w", err)
		}
		const rounds, parallel = 5, 14
		err = each(ctx, rounds*parallel, parallel, func(ctx context.Context, n int) error {
			a.try(ctx, http.MethodPut, fmt.Sprintf("/identities/put-%d", n), body)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// runBodies sends bodies that are small on the wire and large or slow to decode.
func runBodies(ctx context.Context, a *Arena) error {
	filled := func(head, piece, tail string, bytes int) func() io.Reader {
		return func() io.Reader {
			return io.MultiReader(strings.NewReader(head), strings.NewReader(strings.Repeat(piece, bytes/len(piece))),
				strings.NewReader(tail))
		}
	}
	const mib = 1 << 20
	full := int(float64(14*mib) * min(1, a.Sizes.Hold.Seconds()/60))
	bodies := []struct {
		method, path string
		body         func() io.Reader
	}{
		{http.MethodPost, "/ingest", filled("", "[", "", full)},
		{http.MethodPost, "/ingest", filled(`{"content":"a","metadata":`, `{"a":`, "", full)},
		{http.MethodPost, "/ingest", filled(`{"content":"a","metadata":[`, `0,`, "0]}", mib-100)},
		{http.MethodPost, "/ingest", filled(`{"content":"a","metadata":`+strings.Repeat("[", 9990), " ", strings.Repeat("]", 9990)+"}", mib/2)},
		{http.MethodPost, "/ingest/batch", filled(`{"items":[{}`, `,{}`, "]}", 6*full)},
		{http.MethodPost, "/ingest/batch", filled(`{"items":[{"content":"a"}`, `,{"content":"a"}`, "]}", 6*full)},
		{http.MethodPost, "/data-points/delete", filled(`{"ids":["a"`, `,"a"`, "]}", full)},
		{http.MethodPut, "/identities/wide", filled(`{"traits":{"a":"a"`, `,"a":"a"`, "}}", full)},
		{http.MethodPost, "/identities/bulk", filled(`[{}`, `,{}`, "]", full)},
		{http.MethodPut, "/audiences/wide", filled(`{"kind":"fixed","identities":["a"`, `,"b"`, "]}", full)},
		{http.MethodPut, "/audiences/wide", filled(`{"kind":"rule","rule":{"match":"all","conditions":[{}`, `,{}`, "]}}", full)},
		{http.MethodPost, "/recall", filled(`{"identity":"a","query":"`, "ok, it ", `"}`, mib-100)},
	}
	const rounds = 3
	return each(ctx, rounds*len(bodies), 8, func(ctx context.Context, n int) error {
		b := bodies[n%len(bodies)]
		a.try(ctx, b.method, b.path, b.body())
		return nil
	})
}
