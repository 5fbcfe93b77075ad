package projects

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/docs"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/history"
)

// key is a key of the project. LastUsedAt is nil if the request log has no call of it.
type key struct {
	tenants.Key

	LastUsedAt *time.Time `json:"lastUsedAt"`
}

// Days is how long the request log has calls.
func (key) Days() int { return int(requestlog.Retention / (24 * time.Hour)) }

// keysPage is the keys of a project, the newest first.
type keysPage struct {
	Live    []key `json:"keys"`
	Revoked []key `json:"revoked"`
	// New is the key that was just created, in clear, and Replaced the one whose place it takes.
	New      *key `json:"-"`
	Replaced *key `json:"-"`
	// Snippets configure clients of MCP with the new key.
	Snippets []docs.Snippet `json:"-"`
}

// allKeys returns the keys of the project, the newest first.
func (d Deps) allKeys(r *web.Request) ([]key, error) {
	found, err := d.Access.Keys(r.Context(), r.Project.Project.ID)
	if err != nil {
		return nil, err
	}
	uses, err := d.Log.LastUses(r.Context(), r.Project.Project.ID)
	list := make([]key, len(found))
	for i, k := range found {
		list[i].Key = k
		if at, used := uses[requestlog.Key{Name: k.Name, Prefix: k.Prefix}]; used {
			list[i].LastUsedAt = &at
		}
	}
	slices.Reverse(list)
	return list, err
}

// created is a key that was just created, as the list shows it once. It replaces the one with the id Replaces.
type created struct{ ID, Key, Replaces string }

func (d Deps) keys(r *web.Request) (keysPage, error) {
	page := keysPage{Live: []key{}, Revoked: []key{}}
	made, err := web.Once[created](r)
	if err != nil {
		return page, err
	}
	list, err := d.allKeys(r)
	for _, k := range list {
		if k.RevokedAt == nil {
			page.Live = append(page.Live, k)
		} else {
			page.Revoked = append(page.Revoked, k)
		}
	}
	if err != nil || made.Key == "" {
		return page, err
	}
	for i := range page.Live {
		switch k := &page.Live[i]; k.ID {
		case made.ID:
			page.New, k.Key.Key = k, made.Key
		case made.Replaces:
			page.Replaced = k
		}
	}
	page.Snippets, err = d.Snippets(made.Key)
	return page, err
}

// createKey leads to the list, which shows the value of the new key once.
func (d Deps) createKey(r *web.Request) error {
	name := r.Field("name")
	if fields.CheckName(name, 1, limit.KeyName) != nil {
		wrong := fault.New(fault.Invalid, fault.CodeKeyNameInvalid, "a key needs a name of 1 to %d characters", limit.KeyName)
		return web.NewPage("keys.html", d.keys).Again(r, wrong)
	}
	made, err := d.Commands.CreateKey(r.Context(), r.Command(), r.Project.Project.Slug, name)
	if err != nil {
		return web.NewPage("keys.html", d.keys).Again(r, err)
	}
	return web.ShowOnce(r, r.ProjectPath("keys"), created{made.ID, made.Key, r.Field("replaces")})
}

// keyPage is one key, with its value in clear where it is revealed.
type keyPage struct {
	key

	Events []history.Event `json:"events"`
}

func (d Deps) key(r *web.Request) (page keyPage, err error) {
	list, err := d.allKeys(r)
	if err != nil {
		return page, err
	}
	i := slices.IndexFunc(list, func(k key) bool { return k.ID == r.PathValue("key") })
	id, wrong := uuid.Parse(r.PathValue("key"))
	if i < 0 || wrong != nil {
		return page, fault.New(fault.NotFound, fault.CodeNotFound, "the project has no such key")
	}
	page.key = list[i]
	if page.Key.Key, err = web.Once[string](r); err != nil {
		return page, err
	}
	page.Events, err = d.History.Latest(r.Context(), r.HistoryViewer(), history.OfKey+":"+id.String(), lastEvents)
	return page, err
}

// reveal leads to the page of a key, which shows its value once. The command appends an event that names the person.
func (d Deps) reveal(r *web.Request) error {
	value, err := d.Commands.RevealKey(r.Context(), r.Command(), r.Project.Project.Slug, r.PathValue("key"))
	if err != nil {
		return web.NewPage("key.html", d.key).Again(r, err)
	}
	return web.ShowOnce(r, r.ProjectPath("keys", r.PathValue("key")), value)
}

func (d Deps) revoke(r *web.Request) (path string, err error) {
	if r.Field("sure") != "yes" {
		return "", fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"nothing was revoked: tick that calls with the key are to be refused")
	}
	err = d.Commands.RevokeKey(r.Context(), r.Command(), r.Project.Project.Slug, r.PathValue("key"))
	return r.ProjectPath("keys", r.PathValue("key")), err
}
