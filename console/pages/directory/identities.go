package directory

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
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
	Identity   string            `json:"identity"`
	Traits     map[string]string `json:"traits"`
	Origin     string            `json:"origin"`
	LastSeenAt *time.Time        `json:"lastSeenAt"`
	CreatedAt  time.Time         `json:"createdAt"`
	UpdatedAt  time.Time         `json:"updatedAt"`
	Path       string            `json:"-"`
	Tags       []tag             `json:"-"`
}

// tag is a trait in the list, in short, with the list of all that have it.
type tag struct{ Text, Path string }

// maxTags is how many traits of an identity a list shows.
const maxTags = 8

func viewOf(r *web.Request, i directory.Identity) (v identityView, err error) {
	v = identityView{
		Identity: i.Identity, Origin: i.Origin, LastSeenAt: i.LastSeenAt, CreatedAt: i.CreatedAt, UpdatedAt: i.UpdatedAt,
		Path: identityPath(r, i.Identity),
	}
	if err := json.Unmarshal(i.Traits, &v.Traits); err != nil {
		return v, err
	}
	for _, key := range slices.Sorted(maps.Keys(v.Traits)) {
		if len(v.Tags) == maxTags {
			v.Tags = append(v.Tags, tag{"…", v.Path})
			break
		}
		value := v.Traits[key]
		v.Tags = append(v.Tags, tag{web.Cut(key, 30) + ": " + web.Cut(value, 40), r.With("trait", key, "value", value)})
	}
	return v, nil
}

// identityList is a page of the list.
type identityList struct {
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
		Identities: []identityView{}, Prefix: query.Get("prefix"), Trait: query.Get("trait"), Value: query.Get("value"),
		MayWrite: r.May(web.Write),
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
	return r.Rows("identities", columns, func(yield func([]string, error) bool) {
		l.Limit = limit.IdentityPage
		for n := 0; n < exportSize; {
			page, err := d.Directory.Identities(r.Context(), r.Project.Project, l)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, i := range page.List {
				seen := ""
				if i.LastSeenAt != nil {
					seen = i.LastSeenAt.Format(time.RFC3339)
				}
				row := []string{
					i.Identity, i.Origin, seen, i.CreatedAt.Format(time.RFC3339), i.UpdatedAt.Format(time.RFC3339), string(i.Traits),
				}
				if n++; !yield(row, nil) {
					return
				}
			}
			if !page.More {
				return
			}
			l.After, l.Before = page.End, nil
		}
	})
}
