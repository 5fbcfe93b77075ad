package web

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/history"
)

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
