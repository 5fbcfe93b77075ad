package web

import (
	"strings"

	"github.com/google/uuid"
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
