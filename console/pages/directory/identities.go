package directory

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/directory"
)

// identityView is an identity of a list.
type identityView struct {
	directory.Identity
	Tags []tag `json:"-"`
}

// tag is a trait in the list, in short, with the list of all that have it.
type tag struct{ Text, Path string }

// maxTags is how many traits of an identity a list shows.
const maxTags = 8

func viewOf(r *web.Request, i directory.Identity) (v identityView, err error) {
	v.Identity = i
	var traits map[string]string
	if err := json.Unmarshal(i.Traits, &traits); err != nil {
		return v, err
	}
	for _, t := range rowsOf(traits) {
		if len(v.Tags) == maxTags {
			v.Tags = append(v.Tags, tag{"…", linksOf(r).To(i.Identity)})
			break
		}
		text := web.Cut(t.Key, 30) + ": " + web.Cut(t.Value, 40)
		v.Tags = append(v.Tags, tag{text, r.With("trait", t.Key, "value", t.Value)})
	}
	return v, nil
}

// identityList is a page of the list.
type identityList struct {
	links
	Identities []identityView `json:"identities"`
	Pager      web.Pager      `json:"pager"`
	Prefix     string         `json:"prefix,omitempty"`
	Trait      string         `json:"trait,omitempty"`
	Value      string         `json:"value,omitempty"`
	// TraitKeys are what the form suggests.
	TraitKeys []string `json:"-"`
	MayWrite  bool     `json:"-"`
}

// Filtered reports whether the list has a filter.
func (l identityList) Filtered() bool { return l.Prefix != "" || l.Trait != "" }

func (d Deps) identities(r *web.Request) error {
	query := r.URL.Query()
	page := identityList{
		links: linksOf(r), Prefix: query.Get("prefix"), Trait: query.Get("trait"), Value: query.Get("value"),
		Identities: []identityView{}, MayWrite: r.May(web.Write),
	}
	listing, err := page.listing(query.Get("after"), query.Get("before"))
	if err != nil {
		return r.Invalid(err, "identities.html", page)
	}
	if r.Format() == "csv" {
		return d.identityRows(r, listing)
	}
	project := r.Project.Project
	if page.TraitKeys, err = d.Directory.TraitKeys(r.Context(), project); err != nil {
		return err
	}
	found, err := d.Directory.IdentityPage(r.Context(), project, listing)
	if err != nil {
		return err
	}
	for _, i := range found.List {
		v, err := viewOf(r, i)
		if err != nil {
			return err
		}
		page.Identities = append(page.Identities, v)
	}
	page.Pager.Total = web.Total(int(found.Total))
	if found.TotalMore {
		page.Pager.Total = "at least " + page.Pager.Total
	}
	if found.Newer && found.Start != nil {
		page.Pager.Previous = cursorOf(found.Start)
	}
	if found.Older && found.End != nil {
		page.Pager.Next = cursorOf(found.End)
	}
	return r.Render("identities.html", page)
}

func cursorOf(c *directory.Cursor) string {
	return requestlog.Cursor{At: c.CreatedAt, ID: c.ID}.String()
}

// listing is what the list asks for.
func (l identityList) listing(after, before string) (directory.Listing, error) {
	listing := directory.Listing{Limit: pageSize, Prefix: l.Prefix, Key: l.Trait}
	if l.Value != "" {
		listing.Value = &l.Value
		if l.Trait == "" {
			return listing, invalid("%s", words.valueWithoutKey)
		}
	}
	for _, c := range []struct {
		name, text string
		most       int
	}{{"prefix", l.Prefix, limit.Identity}, {"trait", l.Trait, limit.TraitKey}, {"value", l.Value, limit.TraitValue}} {
		if err := fields.CheckName(strings.ToValidUTF8(c.text, "\x00"), 0, c.most); err != nil {
			return listing, invalid(words.field, c.name, err)
		}
	}
	var err error
	place := func(text string) *directory.Cursor {
		if text == "" {
			return nil
		}
		at, wrong := requestlog.ParseCursor(text)
		if err = errors.Join(err, wrong); wrong != nil {
			return nil
		}
		return &directory.Cursor{CreatedAt: at.At, ID: at.ID}
	}
	if listing.After, listing.Before = place(after), place(before); err != nil {
		return listing, invalid("%s", words.noCursor)
	}
	return listing, nil
}

// identityRows writes the list as a file.
func (d Deps) identityRows(r *web.Request, l directory.Listing) error {
	columns := []string{"identity", "origin", "lastSeenAt", "createdAt", "updatedAt", "traits"}
	l.Limit = limit.IdentityPage
	return rows(r, "identities", columns, func() (part [][]string, more bool, err error) {
		page, err := d.Directory.Identities(r.Context(), r.Project.Project, l)
		for _, i := range page.List {
			seen := ""
			if i.LastSeenAt != nil {
				seen = stamp(*i.LastSeenAt)
			}
			part = append(part, []string{i.Identity, i.Origin, seen, stamp(i.CreatedAt), stamp(i.UpdatedAt), string(i.Traits)})
		}
		l.After, l.Before = page.End, nil
		return part, page.More, err
	})
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }
