package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// get reads a route into a value; it is false where the route knows nothing of it.
func (c *directoryClient) get(method, path string, body, into any) bool {
	c.t.Helper()
	status, answer, err := c.s.insist(c.key, method, path, body)
	if err == nil && status == http.StatusNotFound {
		return false
	}
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d %s", status, answer)
	}
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	if err != nil {
		c.t.Errorf("%s: %v", path, err)
	}
	return err == nil
}

type shownIdentity struct {
	Identity  string
	Traits    map[string]string
	Audiences []string
}

// look reads all that is shown of the directory.
func (c *directoryClient) look() view {
	v := view{
		People:    map[string]string{},
		Alone:     map[string]string{},
		Marked:    map[string]string{},
		Audiences: map[string]string{},
		Recalled:  map[string]string{},
	}
	own := func(name string) bool { return strings.HasPrefix(name, fmt.Sprintf("c%d-", c.number)) }
	list := func(query string, do func(shownIdentity)) {
		var page struct{ Identities []shownIdentity }
		c.get(http.MethodGet, "/identities?limit=1000"+query, nil, &page)
		for _, i := range page.Identities {
			if own(i.Identity) {
				do(i)
			}
		}
	}
	list("", func(i shownIdentity) { v.People[i.Identity] = shownTraits(i.Traits) })
	for _, city := range c.cities() {
		var found []string
		list("&traitKey=city&traitValue="+url.QueryEscape(city), func(i shownIdentity) { found = append(found, i.Identity) })
		slices.Sort(found)
		v.Marked[city] = strings.Join(found, " ")
	}
	var audiences struct {
		Audiences []struct {
			Slug, Kind  string
			MemberCount int
			Identities  []string
			Rule        *struct {
				Conditions []struct{ Values []string }
			}
		}
	}
	c.get(http.MethodGet, "/audiences", nil, &audiences)
	for _, a := range audiences.Audiences {
		switch {
		case !own(a.Slug):
		case a.Rule != nil:
			v.Audiences[a.Slug] = shownAudience(a.Kind+" "+a.Rule.Conditions[0].Values[0], a.MemberCount, "")
		default:
			v.Audiences[a.Slug] = shownAudience(a.Kind, a.MemberCount, strings.Join(a.Identities, " "))
		}
	}
	for _, person := range c.people() {
		var one shownIdentity
		if c.get(http.MethodGet, "/identities/"+person, nil, &one) {
			v.Alone[person] = fmt.Sprint(shownTraits(one.Traits), " ", one.Audiences)
		}
		v.Recalled[person] = c.recalled(person)
	}
	return v
}

// recalled are the data points that recall shows somebody.
func (c *directoryClient) recalled(person string) string {
	var page struct {
		Results []struct {
			Artifact struct{ Kind string }
			Sources  []struct{ SourceID string }
		}
	}
	c.get(http.MethodPost, "/recall",
		map[string]any{"query": c.word(), "identity": person, "limit": 200, "maxTokens": 32000}, &page)
	var ids []string
	for _, r := range page.Results {
		if r.Artifact.Kind == "source" && !slices.Contains(ids, r.Sources[0].SourceID) {
			ids = append(ids, r.Sources[0].SourceID)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}
