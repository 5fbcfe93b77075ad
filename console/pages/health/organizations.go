package health

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/projections/access"
)

// maxListed is the most organizations of the page; the filter finds the others.
const maxListed = 200

// organizations are those whose name, id or owner has a text.
type organizations struct {
	Organizations []organization `json:"organizations"`
	Found         int            `json:"found"`
	// More is true if there are more than a list can have: the newest are not in it.
	More bool `json:"more"`
}

type organization struct {
	ID         uuid.UUID    `json:"id"`
	Name       string       `json:"name"`
	Plan       string       `json:"plan"`
	OwnerEmail string       `json:"ownerEmail"`
	Projects   int          `json:"projects"`
	SpendCap   *json.Number `json:"spendCap"`
	IsPrepared bool         `json:"isPrepared"`
	CreatedAt  *time.Time   `json:"createdAt"`
}

func (d Deps) organizations(r *web.Request) error {
	all, err := d.Organizations.Organizations(r.Context(), "")
	if err != nil {
		return err
	}
	wanted := strings.ToLower(strings.TrimSpace(r.URL.Query().Get("q")))
	page := organizations{Organizations: []organization{}, More: len(all) == access.MaxOrganizations}
	for _, o := range all {
		if !strings.Contains(strings.ToLower(o.Name+"\n"+o.ID.String()+"\n"+o.OwnerEmail), wanted) {
			continue
		}
		if page.Found++; page.Found <= maxListed || r.Format() == "csv" {
			page.Organizations = append(page.Organizations, organization{
				o.ID, o.Name, string(o.Plan), o.OwnerEmail, o.Projects, o.SpendCap, o.IsPrepared, o.CreatedAt,
			})
		}
	}
	if r.Format() == "csv" {
		columns := []string{"id", "name", "plan", "ownerEmail", "projects", "spendCap", "isPrepared", "createdAt"}
		return r.Rows("organizations", columns, page.rows)
	}
	return r.Render("organizations.html", page)
}

func (o organizations) rows(yield func([]string, error) bool) {
	for _, o := range o.Organizations {
		spendCap, created := "", ""
		if o.SpendCap != nil {
			spendCap = o.SpendCap.String()
		}
		if o.CreatedAt != nil {
			created = o.CreatedAt.UTC().Format(time.RFC3339)
		}
		row := []string{
			o.ID.String(), o.Name, o.Plan, o.OwnerEmail, strconv.Itoa(o.Projects), spendCap, strconv.FormatBool(o.IsPrepared),
			created,
		}
		if !yield(row, nil) {
			return
		}
	}
}
