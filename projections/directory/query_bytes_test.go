package directory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/projections/directory"
)

// bigTraits is one trait whose JSON has a number of bytes.
func bigTraits(bytes int) traits { return traits{"k": strings.Repeat("x", bytes-len(`{"k":""}`))} }

// limited is a context whose responses may have a number of bytes.
func limited(ctx context.Context, bytes int64) (context.Context, *allowance.Hold) {
	a := allowance.New(allowance.Config{Total: bytes, Share: bytes, Wait: time.Nanosecond, Waiters: 4, Refusal: "full"})
	hold := a.Open(allowance.Owner{Organization: uuid.New()})
	return allowance.NewContext(ctx, hold), hold
}

func TestIdentities_PageIsBoundedByBytes(t *testing.T) {
	w := newFixture(t)
	const mib = 1 << 20
	var want []string
	for n, size := range []int{mib, mib, mib, mib, 5 * mib, 1, 4 * mib, 1, 2 * mib, 2 * mib, 2 * mib} {
		name := fmt.Sprint("person ", n)
		if want = append([]string{name}, want...); size == 1 {
			w.put(name, traits{})
			continue
		}
		w.put(name, bigTraits(size))
	}
	w.apply()
	var got []string
	var pages []int
	l := directory.Listing{Limit: 1000}
	for {
		page, err := w.queries.Identities(t.Context(), here, l)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page.List {
			got = append(got, i.Identity)
		}
		if pages = append(pages, len(page.List)); !page.More {
			break
		}
		l.After = page.End
	}
	w.want("all pages", got, want)
	// In MiB, newest first: 2+2, 2+0, 4, 0, 5, 1+1+1+1. The 4 leaves no room for the two bytes of
	// the next one; the 5 exceeds the limit alone.
	if diff := cmp.Diff([]int{2, 2, 1, 1, 1, 4}, pages); diff != "" {
		t.Errorf("identities by page (-want +got):\n%s", diff)
	}
}

// A call reserves the bytes of its response before it reads them: without room it reads none.
func TestIdentities_BytesAreReserved(t *testing.T) {
	w := newFixture(t)
	w.put("ana", bigTraits(1<<20))
	w.put("ben", bigTraits(1<<20))
	w.apply()
	for name, ask := range map[string]func(ctx context.Context) error{
		"list": func(ctx context.Context) error {
			_, err := w.queries.Identities(ctx, here, directory.Listing{Limit: 1})
			return err
		},
		"one": func(ctx context.Context) error { _, _, err := w.queries.Identity(ctx, here, "ana"); return err },
	} {
		ctx, hold := limited(t.Context(), 8<<20)
		if err := ask(ctx); err != nil || hold.Held() != 2<<20 {
			t.Errorf("%s: %d bytes are reserved, %v", name, hold.Held(), err)
		}
	}
	a := allowance.New(
		allowance.Config{Total: 3 << 20, Share: 2 << 20, Wait: time.Nanosecond, Waiters: 4, Refusal: "full"},
	)
	if err := a.Open(allowance.Owner{Organization: uuid.New()}).Reserve(t.Context(), 2<<20); err != nil {
		t.Fatal(err)
	}
	var f *fault.Error
	ctx := allowance.NewContext(t.Context(), a.Open(allowance.Owner{Organization: uuid.New()}))
	if _, err := w.queries.Identities(
		ctx, here, directory.Listing{Limit: 2},
	); !errors.As(err, &f) || f.Code != fault.CodeServiceUnavailable {
		t.Errorf("without room: %v", err)
	}
}

// Audiences reads definitions in groups, whatever their total size, and reserves one group at a
// time.
func TestAudiences_DefinitionsAreReadInGroups(t *testing.T) {
	w := newFixture(t)
	const rules, bytes = 9, 3 << 19 // 1.5 MiB each
	values := make([]string, limit.RuleValues)
	for n := range values {
		values[n] = strings.Repeat("x", bytes/len(values))
	}
	want := []string{audience.Default}
	for n := range rules {
		slug := fmt.Sprint("rule-", n)
		w.rule(slug, audience.MatchAll, audience.Condition{Trait: "team", Operator: audience.IsOneOf, Values: values})
		want = append(want, slug)
	}
	w.put("ana", traits{})
	w.fixed("list", "ana")
	w.apply()
	want = append(want, "list")
	ctx, hold := limited(t.Context(), 64<<20)
	var got []string
	var most int64
	for a, err := range w.queries.Audiences(ctx, here) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, a.Slug); a.Kind == audience.KindRule && len(a.Rule) < bytes {
			t.Errorf("%s has a rule of %d bytes", a.Slug, len(a.Rule))
		}
		most = max(most, hold.Held())
	}
	w.want("audiences", got, want)
	if most < 2*2*bytes || most > 2*3*bytes || hold.Held() != 0 {
		t.Errorf("at most %d bytes were reserved at once, and %d after all", most, hold.Held())
	}
	one, rest := limited(t.Context(), 64<<20)
	if _, ok, err := w.queries.Audience(one, here, "rule-3"); err != nil || !ok || rest.Held() < 2*bytes {
		t.Errorf("one audience reserves %d bytes, %v", rest.Held(), err)
	}
	a := allowance.New(
		allowance.Config{Total: 1 << 20, Share: 1 << 20, Wait: time.Nanosecond, Waiters: 4, Refusal: "full"},
	)
	if err := a.Open(allowance.Owner{Organization: uuid.New()}).Reserve(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	var f *fault.Error
	if _, err := w.queries.AudienceList(
		allowance.NewContext(t.Context(), a.Open(allowance.Owner{Organization: uuid.New()})), here,
	); !errors.As(err, &f) || f.Code != fault.CodeServiceUnavailable {
		t.Errorf("without room: %v", err)
	}
}

// A list that the caller leaves early reads no further group.
func TestAudiences_LeftEarly(t *testing.T) {
	w := newFixture(t)
	for n := range 3 {
		w.rule(fmt.Sprint("rule-", n), audience.MatchAll, is("team", strings.Repeat("x", 3<<20)))
	}
	w.apply()
	ctx, hold := limited(t.Context(), 64<<20)
	for a, err := range w.queries.Audiences(ctx, here) {
		if err != nil {
			t.Fatal(err)
		}
		if a.Slug == "rule-0" {
			break
		}
	}
	if held := hold.Held(); held < 6<<20 || held > 7<<20 {
		t.Errorf("%d bytes are reserved, those of one rule twice are wanted", held)
	}
}
