package directory

import (
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/projections/explain"
)

// accessPage is whether an identity may read a data point, and why. Reading is nil before it is asked.
type accessPage struct {
	links
	Identity string   `json:"identity"`
	Point    string   `json:"dataPoint"`
	Reading  *reading `json:"reading"`
}

// reading is the answer.
type reading struct {
	MayRead  bool           `json:"mayRead"`
	Reason   explain.Reason `json:"reason"`
	Revision int            `json:"revision,omitempty"`
	// IsProcessed is false while the newest revision is not captured: recall may not find it yet.
	IsProcessed bool      `json:"isProcessed"`
	OccurredAt  time.Time `json:"occurredAt"`
	// Audience is nil unless it has one that exists.
	Audience *judged `json:"audience"`
}

func (d Deps) access(r *web.Request) error {
	query := r.URL.Query()
	page := accessPage{links: linksOf(r), Identity: query.Get("identity"), Point: query.Get("point")}
	if page.Identity == "" && page.Point == "" {
		return r.Render("access.html", page)
	}
	if err := fields.CheckName(page.Identity, 1, limit.Identity); err != nil {
		return r.Invalid(invalid(words.field, "identity", err), "access.html", page)
	}
	if err := fields.CheckName(page.Point, 1, limit.SourceID); err != nil {
		return r.Invalid(invalid(words.field, "data point", err), "access.html", page)
	}
	read, err := d.Access.Explain(r.Context(), r.Project.Project, page.Identity, page.Point)
	if err != nil {
		return err
	}
	page.Reading = &reading{
		MayRead: read.MayRead, Reason: read.Reason, Revision: read.Revision, OccurredAt: read.OccurredAt,
		IsProcessed: read.Captured == read.Revision,
	}
	if read.Judgement != nil && read.Judgement.Audience != nil {
		page.Reading.Audience = new(judgedOf(*read.Judgement))
	}
	return r.Render("access.html", page)
}
