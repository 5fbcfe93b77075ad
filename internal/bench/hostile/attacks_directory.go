package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/hostiletest"
)

const ruledTraits = 20

// prepareRules creates identities with traits, and rules over them: with the longest values, if
// the project may have as many of them, else with shorter ones.
func prepareRules(ctx context.Context, a *Arena) error {
	err := each(ctx, (a.Sizes.Identities+batchSize-1)/batchSize, 1, func(ctx context.Context, n int) error {
		to := min((n+1)*batchSize, a.Sizes.Identities)
		_, err := a.must(ctx, hostiletest.Identities(n*batchSize, to, ruledTraits))
		return err
	})
	if err != nil {
		return err
	}
	return each(ctx, a.Sizes.Rules, 1, func(ctx context.Context, n int) error {
		for _, length := range []int{1900, 480, 100} {
			r := a.try(ctx, hostiletest.Rule(ruleSlug(n), ruledTraits, length))
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

func ruleSlug(n int) string { return fmt.Sprintf("rule-%d", n) }

// runRules recomputes every rule while it changes identities.
func runRules(ctx context.Context, a *Arena) error {
	for range 3 {
		err := each(ctx, a.Sizes.Rules, 6, func(ctx context.Context, n int) error {
			person := fmt.Sprintf("person-%d", n)
			a.try(ctx, post("/audiences/"+ruleSlug(n)+"/recompute", nil))
			a.try(ctx, hostiletest.Request{
				Method: http.MethodPatch, Path: "/identities/" + person,
				Body: map[string]any{"traits": map[string]string{"trait-0": fmt.Sprint(n)}},
			})
			a.try(ctx, post("/recall", map[string]any{"query": "tea", "identity": person}))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	// hugeTraits are 14 MiB, largeTraits a bit less than 512 KiB.
	hugeTraits  = 7300
	largeTraits = 260
	// traitLength is the length of the value of each.
	traitLength = 1990
)

// traits sets so many traits of an identity, encoded once.
func traits(count int) (func(identity string) hostiletest.Request, error) {
	body, err := json.Marshal(hostiletest.Traits("", count, traitLength).Body)
	if err != nil {
		return nil, fmt.Errorf("encode traits: %w", err)
	}
	return func(identity string) hostiletest.Request {
		return hostiletest.Request{Method: http.MethodPut, Path: "/identities/" + identity, Body: body}
	}, nil
}

const allIdentities = "/identities?limit=1000"

func prepareTraits(ctx context.Context, a *Arena) error {
	size, count := hugeTraits, max(a.Sizes.Traits/12, 1)
	r := a.try(ctx, hostiletest.Traits("large-0", size, traitLength))
	if r.status == http.StatusBadRequest || r.status == http.StatusRequestEntityTooLarge {
		size, count = largeTraits, a.Sizes.Traits
	}
	return a.putTraits(ctx, size, count)
}

// putTraits sets traits of count identities.
func (a *Arena) putTraits(ctx context.Context, size, count int) error {
	put, err := traits(size)
	if err != nil {
		return err
	}
	return each(ctx, count, 2, func(ctx context.Context, n int) error {
		_, err := a.must(ctx, put(fmt.Sprintf("large-%d", n)))
		return err
	})
}

// runTraits lists identities with six slow readers and two fast ones.
func runTraits(ctx context.Context, a *Arena) error {
	const slow, quick = 6, 2
	return each(ctx, slow+quick, slow+quick, func(ctx context.Context, n int) error {
		if n < slow {
			return a.readSlowly(ctx, get(allIdentities), 256<<10, a.Sizes.Hold)
		}
		return during(ctx, a.Sizes.Hold, 1, func(ctx context.Context, _ int) {
			a.try(ctx, get(allIdentities))
		})
	})
}

// runPuts puts as many traits at once as a body holds, then as many as are allowed.
func runPuts(ctx context.Context, a *Arena) error {
	for _, size := range []int{hugeTraits, largeTraits} {
		put, err := traits(size)
		if err != nil {
			return err
		}
		const rounds, parallel = 5, 14
		err = each(ctx, rounds*parallel, parallel, func(ctx context.Context, n int) error {
			a.try(ctx, put(fmt.Sprintf("put-%d", n)))
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
	bodies := hostiletest.Bodies(int(float64(14<<20) * min(1, a.Sizes.Hold.Seconds()/60)))
	const rounds = 3
	return each(ctx, rounds*len(bodies), 8, func(ctx context.Context, n int) error {
		a.try(ctx, bodies[n%len(bodies)])
		return nil
	})
}
