package projects

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/account"
)

// maxListed is the most projects of the list; the filter finds the others.
const maxListed = 200

// listed is a project with what it holds and used this month.
type listed struct {
	Slug            string       `json:"slug"`
	Name            string       `json:"name"`
	Description     string       `json:"description"`
	IsArchived      bool         `json:"isArchived"`
	MemoryCount     int64        `json:"memoryCount"`
	IngestionCap    *int64       `json:"ingestionCap"`
	MonthIngestions int64        `json:"monthIngestions"`
	MonthRecalls    int64        `json:"monthRecalls"`
	CreditCap       *json.Number `json:"creditCap"`
	// MonthCredits is null without metering.
	MonthCredits *json.Number `json:"monthCredits"`
	CreatedAt    time.Time    `json:"createdAt"`
}

func listedOf(p account.Project) listed {
	return listed{
		p.Slug, p.Name, p.Description, p.Archived, p.MemoryCount, p.IngestionCap, p.Used.Ingestions, p.Used.Recalls,
		tenants.Cap(p.CreditCapTenths), tenants.Cap(p.ChargedTenths), p.CreatedAt,
	}
}

// list is the projects that the person may read and that have a text in slug or name.
type list struct {
	Organization string   `json:"organization"`
	Projects     []listed `json:"projects"`
	// Found counts those that match, Total all that the person may read.
	Found     int  `json:"found"`
	Total     int  `json:"total"`
	MayCreate bool `json:"-"`
}

func (d Deps) list(r *web.Request) error { return d.showList(r, nil) }

// showList shows the list, and what is wrong with the form.
func (d Deps) showList(r *web.Request, problem error) error {
	all, err := d.Accounts.Projects(r.Context(), r.Membership.Organization)
	if err != nil {
		return err
	}
	page := list{Organization: r.Membership.Name, Projects: []listed{}, MayCreate: r.May(web.Admin)}
	wanted := strings.ToLower(strings.TrimSpace(r.URL.Query().Get("q")))
	for _, p := range all {
		if !r.MayIn(p.ID, web.Read) {
			continue
		}
		page.Total++
		if !strings.Contains(strings.ToLower(p.Slug+"\n"+p.Name), wanted) {
			continue
		}
		if page.Found++; page.Found <= maxListed || r.Format() == "csv" {
			page.Projects = append(page.Projects, listedOf(p))
		}
	}
	switch {
	case problem != nil:
		return r.Invalid(problem, "list.html", page)
	case r.Format() == "csv":
		return r.Rows("projects", columns, page.rows)
	default:
		return r.Render("list.html", page)
	}
}

var columns = []string{
	"slug", "name", "description", "isArchived", "memoryCount", "ingestionCap", "monthIngestions", "monthRecalls",
	"creditCap", "monthCredits", "createdAt",
}

func (l list) rows(yield func([]string, error) bool) {
	for _, p := range l.Projects {
		row := []string{
			p.Slug, p.Name, p.Description, strconv.FormatBool(p.IsArchived), strconv.FormatInt(p.MemoryCount, 10),
			optional(p.IngestionCap), strconv.FormatInt(p.MonthIngestions, 10), strconv.FormatInt(p.MonthRecalls, 10),
			optional(p.CreditCap), optional(p.MonthCredits), p.CreatedAt.UTC().Format(time.RFC3339),
		}
		if !yield(row, nil) {
			return
		}
	}
}

// optional writes a number, "" for none.
func optional[T int64 | json.Number](n *T) string {
	if n == nil {
		return ""
	}
	switch n := any(*n).(type) {
	case int64:
		return strconv.FormatInt(n, 10)
	case json.Number:
		return n.String()
	}
	return ""
}

func (d Deps) create(r *web.Request) error {
	made, err := d.Commands.CreateProject(r.Context(), r.Command(), r.Field("name"))
	if err != nil {
		return d.showList(r, err)
	}
	return r.Done(web.Path("p", made.Slug), "created")
}
