package directory_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/annals-project/annals/projections/directory"
)

// page reads a page of a list for people.
func (w *fixture) page(l directory.Listing) (directory.IdentityPage, []string) {
	w.Helper()
	page, err := w.queries.IdentityPage(w.Context(), here, l)
	if err != nil {
		w.Fatal(err)
	}
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
