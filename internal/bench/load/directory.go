package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/eventstore/backoff"
)

// The traits of the identities that Identities creates: each has one of these numbers of teams,
// regions and levels.
const (
	teams   = 200
	regions = 5
	levels  = 10
)

// Member returns the n-th identity. Teams repeat after the last one.
func Member(n int) client.IdentityRow {
	return client.IdentityRow{Identity: "member-" + strconv.Itoa(n), Traits: map[string]string{
		"team": team(n), "region": "region-" + strconv.Itoa(n%regions), "level": strconv.Itoa(n % levels), "name": "Member " + strconv.Itoa(n),
	}}
}

func team(n int) string { return "team-" + strconv.Itoa(n%teams) }

// bulkRows is how many identities a bulk write has.
const bulkRows = 1000

// Identities creates count identities in bulk writes, one after the other. The rate counts
// identities.
func Identities(ctx context.Context, to *client.Client, count int) (Rate, error) {
	var times Times
	began := time.Now()
	for from := 0; from < count; from += bulkRows {
		rows := make([]client.IdentityRow, min(bulkRows, count-from))
		for i := range rows {
			rows[i] = Member(from + i)
		}
		start := time.Now()
		err := insist(ctx, func() error {
			_, err := to.PutIdentities(ctx, rows)
			return err
		})
		if err != nil {
			return Rate{}, fmt.Errorf("bulk write of identities: %w", err)
		}
		times = append(times, time.Since(start))
	}
	lasted := time.Since(began)
	return Rate{float64(count) / lasted.Seconds(), lasted, times}, nil
}

// insist repeats a call that the client itself makes only once, while a server under load refuses it. The call must
// have the same effect if it is repeated.
func insist(ctx context.Context, call func() error) error {
	const most = 60
	pause := backoff.Backoff{First: 200 * time.Millisecond, Longest: 10 * time.Second}
	for tries := 1; ; tries++ {
		err := call()
		if _, refused := refusedForNow(err); !refused || tries == most || pause.Wait(ctx) != nil {
			return err
		}
	}
}

// RuleSlug returns the slug of the audience of the n-th rule.
func RuleSlug(n int) string { return "rule-" + strconv.Itoa(n) }

// Rule returns the n-th rule: ten teams from the n-th on, without one region.
func Rule(n int) client.Rule {
	of := make([]string, 10)
	for i := range of {
		of[i] = team(n + i)
	}
	return client.Rule{Match: "all", Conditions: []client.Condition{
		{Trait: "team", Operator: "is_one_of", Values: of},
		{Trait: "region", Operator: "is_not", Values: []string{"region-" + strconv.Itoa((n+1)%regions)}},
		{Trait: "level", Operator: "exists", Values: []string{}},
	}}
}

// Rules puts count audiences with rules.
func Rules(ctx context.Context, to *client.Client, count int) (Times, error) {
	var times Times
	for n := range count {
		start, rule := time.Now(), Rule(n)
		put := client.AudiencePut{Slug: RuleSlug(n), Kind: client.AudienceRule, Rule: &rule}
		if _, err := to.PutAudience(ctx, put); err != nil {
			return nil, fmt.Errorf("put a rule: %w", err)
		}
		times = append(times, time.Since(start))
	}
	return times, nil
}

// Recomputes recounts the members of the rules, each over all identities. A rule without members
// is an error.
func Recomputes(ctx context.Context, to *client.Client, rules, count int) (Times, error) {
	var times Times
	var members int64
	for n := range count {
		start := time.Now()
		var a *client.Audience
		err := insist(ctx, func() (err error) {
			a, err = to.RecomputeAudience(ctx, RuleSlug(n%rules))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("recompute a rule: %w", err)
		}
		times, members = append(times, time.Since(start)), members+a.MemberCount
	}
	if members == 0 {
		return nil, errors.New("no rule has a member: nothing was counted")
	}
	return times, nil
}

// Puts puts count of the identities, parallel at a time. Each changes its team, and so enters and
// leaves rules.
func Puts(ctx context.Context, to *client.Client, identities, count, parallel int) (Times, error) {
	var mu sync.Mutex
	var times Times
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range parallel {
		group.Go(func() error {
			for n := int(next.Add(1)); n <= count; n = int(next.Add(1)) {
				member := Member(n * 7919 % identities) // far from each other
				member.Traits["team"] = team(n)
				start := time.Now()
				if _, err := to.PutIdentity(ctx, member); err != nil {
					return fmt.Errorf("put an identity: %w", err)
				}
				mu.Lock()
				times = append(times, time.Since(start))
				mu.Unlock()
			}
			return nil
		})
	}
	return times, group.Wait()
}

// Follow moves an identity in and out of the audience of a text, count times each, and recalls
// right after each answer. It fails if recall does not follow at once. The rule of the audience is
// rule 0, and the text is scoped to it.
func Follow(ctx context.Context, to *client.Client, run string, count int) error {
	word := NewTexts(11).Rare()
	p := client.DataPoint{ID: run + "/scoped", Content: "The word is " + word + ".", Audience: RuleSlug(0)}
	receipt, err := to.Ingest(ctx, p)
	if err != nil {
		return fmt.Errorf("send a scoped text: %w", err)
	}
	if _, err := to.WaitSettled(ctx, receipt.IngestionID, nil); err != nil {
		return fmt.Errorf("wait for a scoped text: %w", err)
	}
	who := client.IdentityRow{Identity: "mover", Traits: map[string]string{"region": "region-0", "level": "1"}}
	recalled := func() (bool, error) {
		page, err := to.Recall(ctx, client.RecallRequest{Query: word, Identity: who.Identity, Limit: 10})
		if err != nil {
			return false, fmt.Errorf("recall: %w", err)
		}
		return slices.ContainsFunc(page.Results, func(r client.RecallResult) bool {
			return r.Sources[0].SourceID == run+"/scoped"
		}), nil
	}
	for n := range 2 * count {
		reaches := n%2 == 0
		if who.Traits["team"] = team(0); !reaches {
			who.Traits["team"] = team(100)
		}
		if _, err := to.PutIdentity(ctx, who); err != nil {
			return fmt.Errorf("put an identity: %w", err)
		}
		got, err := recalled()
		if err != nil {
			return err
		}
		if got != reaches {
			return fmt.Errorf("recall did not follow at once: reached is %v after the identity was put to reach %v", got,
				reaches)
		}
	}
	return nil
}

// Compare sends the same queries to two projects in turn, each as another identity, after a few
// that warm up.
func Compare(
	ctx context.Context, one, other *client.Client, identities, count int, from, until time.Time,
) (a, b Times, err error) {
	texts, found := NewTexts(7), 0
	const warm = 20
	for i := range warm + count {
		q := client.RecallRequest{
			Query: texts.Query(), Identity: Member(i * 7919 % identities).Identity, Limit: 100,
			OccurredFrom: from.Format(time.RFC3339), OccurredTo: until.Format(time.RFC3339),
		}
		ask := func(of *client.Client, times *Times) error {
			start := time.Now()
			page, err := of.Recall(ctx, q)
			if err != nil {
				return fmt.Errorf("recall: %w", err)
			}
			if i >= warm {
				*times, found = append(*times, time.Since(start)), found+len(page.Results)
			}
			return nil
		}
		first, second := func() error { return ask(one, &a) }, func() error { return ask(other, &b) }
		if i%2 == 1 { // alternate, since the second call has warmer caches
			first, second = second, first
		}
		if err := errors.Join(first(), second()); err != nil {
			return nil, nil, err
		}
	}
	if found == 0 {
		return nil, nil, errNothingFound
	}
	return a, b, nil
}
