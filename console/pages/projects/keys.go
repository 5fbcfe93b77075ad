package projects

import (
	"slices"
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/requestlog"
)

// key is a key of the project, without its value.
type key struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Prefix    string     `json:"keyPrefix"`
	Suffix    string     `json:"keySuffix"`
	CreatedAt time.Time  `json:"createdAt"`
	RevokedAt *time.Time `json:"revokedAt"`
	// LastUsedAt is nil if the request log has no call of the key.
	LastUsedAt *time.Time `json:"lastUsedAt"`
}

// keysPage is the keys of a project, the newest first.
type keysPage struct {
	Live    []key `json:"keys"`
	Revoked []key `json:"revoked"`
	// Days is how long the request log has calls.
	Days int `json:"days"`
	// New is the key that was just created, with its Value.
	New      *key   `json:"-"`
	Value    string `json:"-"`
	Replaced *key   `json:"-"`
}

// readKeys returns the keys of the project, the newest first.
func (d Deps) readKeys(r *web.Request) ([]key, error) {
	found, err := d.Keys.Keys(r.Context(), r.Project.Project.ID)
	if err != nil {
		return nil, err
	}
	uses, err := d.Uses.LastUses(r.Context(), r.Project.Project.ID)
	if err != nil {
		return nil, err
	}
	list := make([]key, len(found))
	for i, k := range found {
		list[i] = key{k.ID, k.Name, k.Prefix, k.Suffix, k.CreatedAt, k.RevokedAt, nil}
		if at, used := uses[requestlog.Key{Name: k.Name, Prefix: k.Prefix}]; used {
			list[i].LastUsedAt = &at
		}
	}
	slices.Reverse(list)
	return list, nil
}

func (d Deps) keys(r *web.Request) error {
	list, err := d.readKeys(r)
	if err != nil {
		return err
	}
	return r.Render("keys.html", keysOf(list))
}

func keysOf(list []key) keysPage {
	page := keysPage{Live: []key{}, Revoked: []key{}, Days: int(requestlog.Retention / (24 * time.Hour))}
	for _, k := range list {
		if k.RevokedAt == nil {
			page.Live = append(page.Live, k)
		} else {
			page.Revoked = append(page.Revoked, k)
		}
	}
	return page
}

// createKey shows the value of the new key in its answer, and nowhere else.
func (d Deps) createKey(r *web.Request) error {
	name, value, id := r.Field("name"), "", ""
	err := fields.CheckName(name, 1, limit.KeyName)
	if err != nil {
		err = fault.New(fault.Invalid, fault.CodeKeyNameInvalid, "a key needs a name of 1 to %d characters", limit.KeyName)
	} else {
		made, failed := d.Commands.CreateKey(r.Context(), r.Command(), r.Project.Project.Slug, name)
		value, id, err = made.Key, made.ID, failed
	}
	list, failed := d.readKeys(r)
	if failed != nil {
		return failed
	}
	page := keysOf(list)
	if err != nil {
		return r.Invalid(err, "keys.html", page)
	}
	page.Value = value
	for i := range list {
		switch list[i].ID {
		case id:
			page.New = &list[i]
		case r.Field("replaces"):
			page.Replaced = &list[i]
		}
	}
	return r.Render("keys.html", page)
}

// keyPage is one key, with its value where it is revealed.
type keyPage struct {
	key

	Days  int    `json:"days"`
	Value string `json:"-"`
}

func (d Deps) key(r *web.Request) error { return d.showKey(r, "", nil) }

func (d Deps) showKey(r *web.Request, value string, problem error) error {
	list, err := d.readKeys(r)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(k key) bool { return k.ID == r.PathValue("key") })
	switch {
	case i < 0:
		return fault.New(fault.NotFound, fault.CodeNotFound, "the project has no such key")
	case problem != nil:
		return r.Invalid(problem, "key.html", keyPage{list[i], keysOf(nil).Days, ""})
	default:
		return r.Render("key.html", keyPage{list[i], keysOf(nil).Days, value})
	}
}

// reveal shows the value of a key again. The command appends an event that names the person.
func (d Deps) reveal(r *web.Request) error {
	value, err := d.Commands.RevealKey(r.Context(), r.Command(), r.Project.Project.Slug, r.PathValue("key"))
	return d.showKey(r, value, err)
}

func (d Deps) revoke(r *web.Request) error {
	if r.Field("sure") != "yes" {
		return d.showKey(r, "", fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"nothing was revoked: tick that calls with the key are to be refused"))
	}
	err := d.Commands.RevokeKey(r.Context(), r.Command(), r.Project.Project.Slug, r.PathValue("key"))
	if err != nil {
		return d.showKey(r, "", err)
	}
	return r.Done(r.ProjectPath("keys", r.PathValue("key")), "revoked")
}
