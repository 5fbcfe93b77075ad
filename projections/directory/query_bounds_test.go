package directory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/runtest"
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
		runtest.Must(t, err)
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
	runtest.Must(t, a.Open(allowance.Owner{Organization: uuid.New()}).Reserve(t.Context(), 2<<20))
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
		runtest.Must(t, err)
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
	runtest.Must(t, a.Open(allowance.Owner{Organization: uuid.New()}).Reserve(t.Context(), 1))
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
		runtest.Must(t, err)
		if a.Slug == "rule-0" {
			break
		}
	}
	if held := hold.Held(); held < 6<<20 || held > 7<<20 {
		t.Errorf("%d bytes are reserved, those of one rule twice are wanted", held)
	}
}

// page reads a page of a list for people.
func (w *fixture) page(l directory.Listing) (directory.IdentityPage, []string) {
	w.Helper()
	page, err := w.queries.IdentityPage(w.Context(), here, l)
	runtest.Must(w, err)
	var names []string
	for _, i := range page.List {
		names = append(names, i.Identity)
	}
	return page, names
}

func TestIdentityPage_BothWays(t *testing.T) {
	w := newFixture(t, "there")
	for n := range 7 {
		w.put(fmt.Sprint("ana-", n), traits{"team": "red"})
		w.put(fmt.Sprint("ben-", n), traits{"team": "blue", "50%": "x"})
	}
	w.appear("ana")
	w.apply()
	red := "red"
	for _, c := range []struct {
		name string
		l    directory.Listing
		want []string
	}{
		{"by prefix", directory.Listing{Prefix: "ana-"}, []string{"ana-6", "ana-5", "ana-4", "ana-3", "ana-2", "ana-1", "ana-0"}},
		{"by trait", directory.Listing{Key: "50%"}, []string{"ben-6", "ben-5", "ben-4", "ben-3", "ben-2", "ben-1", "ben-0"}},
		{"by both", directory.Listing{Prefix: "ana", Key: "team", Value: &red}, []string{
			"ana-6", "ana-5", "ana-4", "ana-3", "ana-2", "ana-1", "ana-0",
		}},
		{"by both, of nobody", directory.Listing{Prefix: "ben", Key: "team", Value: &red}, nil},
		{"by a whole name", directory.Listing{Prefix: "ben-3"}, []string{"ben-3"}},
		{"of no pattern", directory.Listing{Prefix: "an_-"}, nil},
		{"of another case", directory.Listing{Prefix: "Ana"}, nil},
	} {
		for _, c.l.Limit = range []int{1, 2, 3, 7, 8} {
			var pages []directory.IdentityPage
			var names []string
			for l, more := c.l, true; more; {
				page, part := w.page(l)
				pages, names = append(pages, page), append(names, part...)
				if page.Newer != (len(pages) > 1) || page.Total != int64(len(c.want)) || page.TotalMore {
					t.Errorf("%s: page %d of %d: %+v", c.name, len(pages), c.l.Limit, page)
				}
				more, l.After = page.Older, page.End
			}
			w.want(fmt.Sprint(c.name, " in pages of ", c.l.Limit), names, c.want)
			for n := len(pages) - 1; n > 0; n-- {
				l := c.l
				l.Before = pages[n].Start
				page, back := w.page(l)
				_, forth := w.page(func() directory.Listing {
					l := c.l
					if n > 1 {
						l.After = pages[n-2].End
					}
					return l
				}())
				w.want(fmt.Sprint(c.name, " back in pages of ", c.l.Limit), back, forth)
				if page.Newer != (n > 1) || !page.Older {
					t.Errorf("%s: back to page %d: newer %v, older %v", c.name, n, page.Newer, page.Older)
				}
			}
		}
	}
	if page, _ := w.page(directory.Listing{Limit: 3}); page.Total != 15 {
		t.Errorf("%d identities, want 15", page.Total)
	}
	keys, err := w.queries.TraitKeys(t.Context(), here)
	if err != nil || !slices.Equal(keys, []string{"50%", "team"}) {
		t.Errorf("keys %q, %v", keys, err)
	}
	if keys, err := w.queries.TraitKeys(t.Context(), project("there")); err != nil || len(keys) > 0 {
		t.Errorf("keys of the neighbour: %q, %v", keys, err)
	}
}

// A search looks at so many identities and no more: it ends the page early, and the next one goes on there.
func TestIdentityPage_BoundOfASearch(t *testing.T) {
	w := newFixture(t)
	w.queries.SetSearched(4, 3)
	for n := range 10 {
		w.put(fmt.Sprint("ana-", n), traits{"team": "red"})
	}
	w.apply()
	for _, c := range []struct {
		name  string
		l     directory.Listing
		pages int
	}{
		{"by prefix", directory.Listing{Prefix: "ana-1", Limit: 2}, 3},
		{"by prefix and trait", directory.Listing{Prefix: "ana-1", Key: "team", Limit: 2}, 4},
	} {
		var names []string
		pages := 0
		for l, more := c.l, true; more; pages++ {
			page, part := w.page(l)
			names = append(names, part...)
			more, l.After = page.Older, page.End
			if !page.TotalMore {
				t.Errorf("%s: the total of page %d is exact", c.name, pages)
			}
		}
		w.want(c.name, names, []string{"ana-1"})
		if pages != c.pages {
			t.Errorf("%s: %d pages, want %d", c.name, pages, c.pages)
		}
	}
}
