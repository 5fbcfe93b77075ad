// Package usage is the page that shows what an organization has, used and was charged, by project, day and key.
package usage

import (
	"cmp"
	"embed"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/svg"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/account"
)

//go:embed *.html
var templates embed.FS

// Deps are what the page reads.
type Deps struct {
	Accounts account.Queries
	Log      *requestlog.Log
}

// Area returns the page.
func Area(d Deps) web.Area {
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET /usage", Needs: web.Member, Auditors: web.Audited, Serve: d.usage},
	}}
}

// words are the messages of the page that are in no template.
var words = struct {
	badDay, badMonth, day, project, callsByDay, creditsByDay, usesByProject, creditsByProject string
	credits, ingestions, recalls, others, noKey, lastWeek, thisWeek, thirtyDays               string
}{
	badDay: "%.20q is no day: write it as 2026-05-31", badMonth: "%.20q is no month: write it as 2026-05",
	day: "Day (UTC)", project: "Project", callsByDay: "Calls by day and key", creditsByDay: "Credits by day and key",
	usesByProject: "Data points and recalls by project", creditsByProject: "Credits by project", credits: "credits",
	ingestions: "data points", recalls: "recalls", others: "other keys", noKey: "no key",
	lastWeek: "Last week", thisWeek: "This week", thirtyDays: "30 days",
}

// view is the data of the page.
type view struct {
	account.Usage
	Metered bool
	// From and To are the first and the last day of Days and Keys.
	From, To time.Time
	Days     []requestlog.Cost
	// More reports that Days were cut.
	More bool
	// Keys are what each key cost in these days, the highest cost first; Total is of all keys.
	Keys                    []keyCost
	Total                   keyCost
	ByProject, ByDay        svg.Bars `json:"-"`
	EarlierMonth, NextMonth string   `json:"-"`

	slugs map[uuid.UUID]string
}

// keyCost is what the calls of a key of a project were charged.
type keyCost struct {
	Project      string
	Key          requestlog.Key
	CallCount    int64
	CreditTenths int64
}

const dayLayout, monthLayout = "2006-01-02", "2006-01"

func (d Deps) usage(r *web.Request) error {
	month, wrongMonth := read(r, "month", monthLayout, words.badMonth, r.Now())
	to, wrongTo := read(r, "to", dayLayout, words.badDay, r.Now().Truncate(24*time.Hour))
	from, wrongFrom := read(r, "from", dayLayout, words.badDay, to.AddDate(0, 0, -6))
	if err := errors.Join(wrongMonth, wrongTo, wrongFrom); err != nil {
		return err
	}
	used, err := d.Accounts.Usage(r.Context(), r.Command().Principal, month)
	if err != nil {
		return err
	}
	v := view{Usage: used, Metered: used.Metered(), From: from, To: to, slugs: map[uuid.UUID]string{}}
	if !r.May(web.Owner) {
		v.SpendCapTenths, v.SpendCapLeftTenths = nil, nil
	}
	v.Projects = slices.DeleteFunc(used.Projects, func(p account.Project) bool { return !r.Sees(p.ID) })
	ids := []uuid.UUID{}
	for _, p := range v.Projects {
		ids, v.slugs[p.ID] = append(ids, p.ID), p.Slug
	}
	if v.Days, v.More, err = d.Log.Costs(r.Context(), ids, from, to); err != nil {
		return err
	}
	v.sum()
	v.ByProject, v.ByDay = v.byProject(), v.byDay()
	v.EarlierMonth = r.With("month", v.Month.From.AddDate(0, -1, 0).Format(monthLayout))
	if v.Month.To.Before(r.Now()) {
		v.NextMonth = r.With("month", v.Month.To.Format(monthLayout))
	}
	var part web.Part[requestlog.Cost] // the page has all of them
	return web.List[requestlog.Cost]{
		Name: "costs", Columns: []string{"day", "project", "key", "keyPrefix", "calls", "credits"}, Cells: v.cells,
		Read: func(after, before string, most int) (web.Part[requestlog.Cost], error) {
			return web.SliceOf(v.Days, after, before, most), nil
		},
	}.Page(r, "usage.html", v, &part, nil)
}

// read reads a parameter that is a day or a month.
func read(r *web.Request, name, layout, wrong string, otherwise time.Time) (time.Time, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	at, err := time.Parse(layout, text)
	if err != nil {
		return at, fault.New(fault.Invalid, fault.CodeInvalidRequest, wrong, text)
	}
	return at, nil
}

// keyOf is the key of a cost with its project.
func (v *view) keyOf(c requestlog.Cost) keyCost {
	return keyCost{Project: v.slugs[c.Project], Key: c.Key}
}

// sum adds the days up by key.
func (v *view) sum() {
	at := map[keyCost]int{}
	for _, c := range v.Days {
		key := v.keyOf(c)
		n, ok := at[key]
		if !ok {
			n = len(v.Keys)
			at[key], v.Keys = n, append(v.Keys, key)
		}
		for _, sum := range []*keyCost{&v.Keys[n], &v.Total} {
			sum.CallCount += c.CallCount
			sum.CreditTenths += c.CreditTenths
		}
	}
	slices.SortStableFunc(v.Keys, func(a, b keyCost) int {
		return cmp.Or(cmp.Compare(b.CreditTenths, a.CreditTenths), cmp.Compare(b.CallCount, a.CallCount))
	})
}

// drawnKeys is how many keys have a colour; the others share one.
const drawnKeys = 5

// byDay draws what each day cost, in credits, or in calls without metering.
func (v *view) byDay() svg.Bars {
	b := svg.Bars{Label: words.callsByDay, Heading: words.day}
	if v.Metered {
		b.Label, b.Format = words.creditsByDay, tenths
	}
	series := map[keyCost]int{}
	for n, k := range v.Keys {
		k.CallCount, k.CreditTenths = 0, 0
		if series[k] = min(n, drawnKeys); n < drawnKeys {
			b.Series = append(b.Series, svg.Series{Name: k.Project + ": " + cmp.Or(k.Key.Name, words.noKey), Class: class(n)})
		}
	}
	if len(v.Keys) > drawnKeys {
		b.Series = append(b.Series, svg.Series{Name: words.others, Class: class(drawnKeys)})
	}
	days := v.Days
	for at := v.From; !at.After(v.To); at = at.AddDate(0, 0, 1) {
		day := at.Format(dayLayout)
		bar := svg.Bar{
			Label: at.Format("Monday, 2 January 2006"), Tick: at.Format("2 Jan"), Values: make([]float64, len(b.Series)),
			Href: "?from=" + day + "&to=" + day + "#keys",
		}
		for len(days) > 0 && days[0].Day.Equal(at) {
			value := days[0].CallCount
			if v.Metered {
				value = days[0].CreditTenths
			}
			bar.Values[series[v.keyOf(days[0])]] += float64(value)
			days = days[1:]
		}
		b.Bars = append(b.Bars, bar)
	}
	return b
}

func class(n int) string { return "c" + strconv.Itoa(n+1) }

// tenths writes tenths of a credit.
func tenths(v float64) string { return metering.Credits(int64(v)).String() }

// byProject draws what each project used in the month.
func (v *view) byProject() svg.Bars {
	b := svg.Bars{Label: words.usesByProject, Heading: words.project, Series: []svg.Series{
		{Name: words.ingestions, Class: "c1"},
		{Name: words.recalls, Class: "c2"},
	}}
	if v.Metered {
		b.Label, b.Format, b.Series = words.creditsByProject, tenths, []svg.Series{{Name: words.credits, Class: "c1"}}
	}
	for _, p := range v.Projects[:min(len(v.Projects), maxDrawn)] {
		values := []float64{float64(p.Used.Ingestions), float64(p.Used.Recalls)}
		if v.Metered {
			values = []float64{float64(p.Used.CreditTenths)}
		}
		bar := svg.Bar{Label: p.Slug, Tick: web.Cut(p.Slug, 12), Href: web.Path("p", p.Slug), Values: values}
		b.Bars = append(b.Bars, bar)
	}
	return b
}

// maxDrawn is how many projects are drawn, those with the highest charges. The table has all.
const maxDrawn = 60

// Presets are windows of days by their names.
func (v view) Presets(r *web.Request) (list []web.Link) {
	today := r.Now().Truncate(24 * time.Hour)
	monday := today.AddDate(0, 0, -(int(today.Weekday())+6)%7)
	for _, p := range []struct {
		text     string
		from, to time.Time
	}{
		{words.lastWeek, monday.AddDate(0, 0, -7), monday.AddDate(0, 0, -1)},
		{words.thisWeek, monday, today},
		{words.thirtyDays, today.AddDate(0, 0, -29), today},
	} {
		list = append(list, web.Link{
			Text: p.text, Path: r.With("from", p.from.Format(dayLayout), "to", p.to.Format(dayLayout)),
		})
	}
	return list
}

// End is the first instant after the days.
func (v view) End() time.Time { return v.To.AddDate(0, 0, 1) }

func (v *view) cells(c requestlog.Cost) []any {
	credits := ""
	if v.Metered {
		credits = tenths(float64(c.CreditTenths))
	}
	return []any{c.Day.Format(dayLayout), v.slugs[c.Project], c.Key.Name, c.Key.Prefix, c.CallCount, credits}
}
