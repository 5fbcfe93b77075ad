package web

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/history"
)

// Link is an entry of the navigation.
type Link struct {
	Text, Path string
	Here       bool
}

// pages are the entries of the navigation in its order. An entry whose page no area has is left out.
var (
	projectPages = []Link{
		{"Overview", "/p/{project}", false},
		{"Recall", "/p/{project}/recall", false},
		{"Data points", "/p/{project}/data", false},
		{"Ingest", "/p/{project}/ingest", false},
		{"Identities", "/p/{project}/identities", false},
		{"Audiences", "/p/{project}/audiences", false},
		{"Who sees what", "/p/{project}/access", false},
		{"Webhooks", "/p/{project}/webhooks", false},
		{"Requests", "/p/{project}/requests", false},
		{"Trace", "/p/{project}/trace", false},
		{"Reads", "/p/{project}/reads", false},
		{"Failed sends", "/p/{project}/failed", false},
		{"Import", "/p/{project}/import", false},
		{"Export", "/p/{project}/export", false},
		{"Keys", "/p/{project}/keys", false},
		{"History", "/p/{project}/history", false},
		{"Caps", "/p/{project}/caps", false},
		{"Erase a person", "/p/{project}/erasures", false},
	}
	sitePages = []Link{
		{"Projects", "/", false},
		{"Usage", "/usage", false},
		{"Organization", "/settings/organization", false},
		{"Members", "/settings/members", false},
		{"Agents", "/settings/agents", false},
		{"Connections", "/settings/connections", false},
		{"History", "/settings/history", false},
		{"Audit log", "/settings/audit", false},
		{"Health", "/health", false},
		{"Organizations", "/operator/organizations", false},
		{"Documentation", "/docs", false},
	}
)

// SiteLinks are the pages of the organization that the person may open, and those that everybody may.
func (r *Request) SiteLinks() []Link { return r.links(sitePages) }

// ProjectLinks are the pages of the project of the request that the person may open, none without a project.
func (r *Request) ProjectLinks() []Link {
	if r.Project.Project.ID == uuid.Nil {
		return nil
	}
	return r.links(projectPages)
}

func (r *Request) links(of []Link) (list []Link) {
	for _, link := range of {
		pattern := link.Path
		if pattern == "/" {
			pattern = "/{$}"
		}
		page, ok := r.site.paths[pattern]
		if !ok || page.Needs != Nothing && !r.SignedIn() || !r.mayOpen(page) || page.Live && r.Project.Archived {
			continue
		}
		link.Path = strings.Replace(link.Path, "{project}", r.Project.Project.Slug, 1)
		link.Here = r.URL.Path == link.Path ||
			strings.HasPrefix(r.URL.Path, link.Path+"/") && link.Text != "Overview" && link.Path != "/"
		list = append(list, link)
	}
	return list
}

// ProjectPath is a path below the project of the request: its parts are escaped.
func (r *Request) ProjectPath(parts ...string) string {
	return Path(slices.Concat([]string{"p", r.Project.Project.Slug}, parts)...)
}

// dots are parts that a browser takes for a step in the path, however they are escaped, with marks before them.
var dots = regexp.MustCompile(`^~*\.{1,2}$`)

// Part is a parameter of the path, as it was given to Path.
func (r *Request) Part(name string) string {
	part := r.PathValue(name)
	if dots.MatchString(part) {
		part = strings.TrimPrefix(part, "~")
	}
	return part
}

// Path joins parts to a path from the root, each escaped. Part reads them.
func Path(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteByte('/')
		if dots.MatchString(part) {
			b.WriteByte('~')
		}
		b.WriteString(url.PathEscape(part))
	}
	return b.String()
}

// HistoryViewer is what the person sees of history: in the project of the path, or else in the current organization.
func (r *Request) HistoryViewer() history.Viewer {
	v := history.Viewer{
		Organization: r.Membership.Organization, Project: r.Project.Project.ID, May: history.Read,
		HidesTexts: !r.SeesTexts(),
	}
	switch {
	case r.Audits(), r.May(Manage), v.Project == uuid.Nil && r.May(Admin):
		v.May = history.Manage
	case r.May(Write):
		v.May = history.Write
	}
	v.HidesTexts = !r.SeesTexts()
	return v
}

// HistoryPath is the page of an event of history, or with "" the list: of the project of the path, or of the current
// organization.
func (r *Request) HistoryPath(id string) string {
	path := []string{"settings", "history"}
	if r.Project.Project.ID != uuid.Nil {
		path = []string{"p", r.Project.Project.Slug, "history"}
	}
	if id != "" {
		path = append(path, id)
	}
	return Path(path...)
}

// ThingPath is the page of a thing that history names, "" for one without a page, or with one that the person may not
// open. name is its name; that of an audience, an identity or a data point is in its address.
func (r *Request) ThingPath(kind, id, name, project string) string {
	isNamed := name != "" && name != id
	switch {
	case id == "":
		return ""
	case kind == "person" || kind == history.OfMember:
		if r.May(Admin) || r.Audits() {
			return Path("settings", "members", id)
		}
		return ""
	case project == "":
		return ""
	case kind == history.OfKey || kind == history.OfErasure || kind == history.OfCaps:
		if r.HistoryViewer().May < history.Manage {
			return ""
		}
		if kind == history.OfCaps {
			return Path("p", project, "caps")
		}
		return Path("p", project, map[string]string{history.OfKey: "keys", history.OfErasure: "erasures"}[kind], id)
	case kind == "project":
		return Path("p", name)
	case kind == history.OfWebhook && isNamed:
		return Path("p", project, "webhooks", id)
	case kind == history.OfSend:
		return Path("p", project, "sends", id)
	case kind == history.OfAudience && isNamed:
		return Path("p", project, "audiences", name)
	case kind == history.OfIdentity && isNamed && name != history.Erased:
		return Path("p", project, "identities", name)
	case kind == history.OfDataPoint && isNamed && name != history.SomeText:
		return Path("p", project, "data", name)
	default:
		return ""
	}
}

// Zone is the time zone in which the person reads times.
func (r *Request) Zone() *time.Location {
	if r.zone != nil {
		return r.zone
	}
	r.zone = time.UTC
	name := r.Session.Zone
	if cookie, err := r.Cookie("zone"); err == nil && name == "" {
		name = cookie.Value
	}
	if zone, err := time.LoadLocation(name); err == nil && len(name) < 64 && name != "Local" {
		r.zone = zone
	}
	return r.zone
}
