package directory

import (
	"cmp"
	"strings"
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
)

// operatorWords name the operators of rules.
var operatorWords = map[audience.Operator]string{
	audience.Is: "is", audience.IsNot: "is there, and not", audience.IsOneOf: "is one of",
	audience.IsNotOneOf: "is there, and none of", audience.Exists: "is there", audience.DoesNotExist: "is not there",
}

// condition is a condition of a rule in words. The rest is of an identity that it is compared with.
type condition struct {
	Text  string `json:"text"`
	Holds bool   `json:"holds"`
	// Has is the value of the identity, HasNone is true without one.
	Has     string `json:"has,omitempty"`
	HasNone bool   `json:"hasNone"`
}

func textOf(c audience.Condition) string {
	text := c.Trait + " " + operatorWords[c.Operator]
	if len(c.Values) > 0 {
		text += " " + strings.Join(c.Values, ", ")
	}
	return web.Cut(text, 200)
}

// points are the newest data points of a list, and how many it has.
type points struct {
	Total  string  `json:"total"`
	Newest []point `json:"newest"`
}

type point struct {
	ID         string    `json:"id"`
	Text       string    `json:"text"`
	OccurredAt time.Time `json:"occurredAt"`
	Path       string    `json:"-"`
}

func (d Deps) points(r *web.Request, f datapoints.Filter) (points, error) {
	list, err := d.Points.List(r.Context(), r.Project.Project.ID, datapoints.ListQuery{Filter: f, Limit: 5})
	shown := points{Total: web.Total(list.Total), Newest: []point{}}
	if list.More {
		shown.Total = web.Total(list.Total + 1)
	}
	for _, p := range list.Points {
		text := p.Excerpt
		if p.Label != nil {
			text = *p.Label
		}
		shown.Newest = append(shown.Newest, point{
			p.SourceID, web.Cut(cmp.Or(text, p.SourceID), 100), p.OccurredAt, r.ProjectPath("data", p.SourceID),
		})
	}
	return shown, err
}

// judged is whether an identity belongs to an audience, and why.
type judged struct {
	Slug     string         `json:"slug"`
	Kind     audience.Kind  `json:"kind"`
	Match    audience.Match `json:"match,omitempty"`
	IsMember bool           `json:"isMember"`
	Since    time.Time      `json:"since"`
	// IsExact is false if it may have belonged to it before.
	IsExact    bool        `json:"isExact"`
	Conditions []condition `json:"conditions"`
}

func judgedOf(j directory.Judgement) judged {
	v := judged{
		Slug: j.Audience.Slug, Kind: j.Audience.Kind, Match: j.Match, IsMember: j.IsMember, Since: j.Since, IsExact: j.Exact,
		Conditions: []condition{},
	}
	for _, c := range j.Conditions {
		shown := condition{Text: textOf(c.Condition), Holds: c.Holds, HasNone: c.Value == nil}
		if c.Value != nil {
			shown.Has = web.Cut(*c.Value, 100)
		}
		v.Conditions = append(v.Conditions, shown)
	}
	return v
}
