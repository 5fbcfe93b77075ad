// Package directory is the pages of the identities of a project, of its audiences, and of who may read what.
package directory

import (
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/history"
	"github.com/annals-project/annals/projections/why"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read and change.
type Deps struct {
	Directory *directory.Queries
	Commands  *commands.Service
	Points    datapoints.Queries
	Access    why.Access
	History   history.Reader
	Calls     *requestlog.Log
}

// The most bytes of forms: with the traits of an identity, with a file of identities, and with a list of members or a
// rule. Browsers may send three bytes for one.
const (
	traitsForm = 6 << 20
	fileForm   = 4 << 20
	listForm   = 24 << 20
)

// longTime is how long the import of a file takes at most, or a put of a long list.
const longTime = 3 * time.Minute

const (
	// newest is how many data points of an author or of an audience a page shows, recalls how many of an identity.
	newest  = 5
	recalls = 10
	// lastEvents is how many changes a page shows of an identity or of an audience.
	lastEvents = 10
	// recallDays is how far back these are looked for.
	recallDays = 31
)

// Area returns the pages.
func Area(d Deps) web.Area {
	const p = "/p/{project}/"
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET " + p + "identities", Needs: web.Read, Auditors: web.Audited, Serve: d.identities},
		{Pattern: "GET " + p + "identities/{identity}", Needs: web.Read, Auditors: web.AuditedTexts, Serve: d.identity},
		{Pattern: "GET " + p + "new-identity", Needs: web.Write, Live: true, Serve: d.newIdentity},
		{Pattern: "POST " + p + "identity", Needs: web.Write, Live: true, Body: traitsForm, Serve: d.saveIdentity},
		{Pattern: "POST " + p + "identity/delete", Needs: web.Write, Live: true, Serve: d.deleteIdentity},
		{Pattern: "GET " + p + "import-identities", Needs: web.Write, Live: true, Serve: d.importForm},
		{
			Pattern: "POST " + p + "import-identities", Needs: web.Write, Live: true, Body: fileForm, Time: longTime,
			Serve: d.importFile,
		},
		{Pattern: "GET " + p + "audiences", Needs: web.Read, Auditors: web.Audited, Serve: d.audiences},
		{Pattern: "GET " + p + "audiences/{slug}", Needs: web.Read, Auditors: web.AuditedTexts, Serve: d.audience},
		{Pattern: "GET " + p + "audiences/{slug}/edit", Needs: web.Write, Live: true, Serve: d.editAudience},
		{Pattern: "GET " + p + "new-audience", Needs: web.Write, Live: true, Serve: d.newAudience},
		{
			Pattern: "POST " + p + "new-audience", Needs: web.Write, Live: true, Body: listForm, Time: longTime,
			Serve: d.saveAudience,
		},
		{Pattern: "POST " + p + "audiences/{slug}/recompute", Needs: web.Write, Live: true, Serve: d.recomputeAudience},
		{Pattern: "POST " + p + "audiences/{slug}/delete", Needs: web.Write, Live: true, Serve: d.deleteAudience},
		{Pattern: "GET " + p + "access", Needs: web.Read, Auditors: web.AuditedTexts, Serve: d.access},
	}}
}

// words are the messages of these pages that are in no template.
var words = struct {
	noIdentity, noAudience, known, future, sinceWhen  string
	valueWithoutKey, tooMany, badRows, partly, noFile string
}{
	noIdentity: "the project has no identity %.80q", noAudience: "the project has no audience %.80q",
	sinceWhen:       "as of: name the time since when access was lost",
	future:          "as of: it lies in the future",
	known:           "the project has %.80q already: change that one, or choose another name",
	valueWithoutKey: "belongs to a trait: name the trait too",
	tooMany:         "these would be more than %d identities", noFile: "choose a file, or paste its text",
	badRows: "%d rows have a problem, so nothing was imported: mend the file, or import the rows without a problem",
	partly:  "%d of %d rows are imported, then it stopped: %s. To import the file again is safe",
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, format, args...)
}

// notFound is the fault if something is not there, or err.
func notFound(err error, ok bool, format, name string) error {
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, format, name)
	}
	return err
}

// notNew is the fault if something is there already, or err.
func notNew(err error, exists bool, name string) error {
	if err == nil && exists {
		err = fault.New(fault.Conflict, fault.CodeConflict, words.known, name)
	}
	return err
}

// accessPage is whether an identity may read a data point, or could at a time, and why. Reading is nil before it is
// asked.
type accessPage struct {
	Identity string       `json:"identity"`
	Point    string       `json:"dataPoint"`
	At       string       `json:"-"`
	Reading  *why.Reading `json:"reading"`
}

func (d Deps) access(r *web.Request) error {
	query := r.URL.Query()
	page := accessPage{Identity: query.Get("identity"), Point: query.Get("point"), At: query.Get("at")}
	if page.Identity == "" || page.Point == "" { // links name one of them
		return r.Render("access.html", page)
	}
	var problems fields.Problems
	problems.CheckParameter("identity", page.Identity, limit.Identity)
	problems.CheckParameter("point", page.Point, limit.SourceID)
	at, err := asOf(r)
	if wrong := problems.Err(); wrong != nil {
		err = wrong
	}
	if err == nil {
		var reading why.Reading
		if at == nil {
			reading, err = d.Access.Explain(r.Context(), r.Project.Project, page.Identity, page.Point)
		} else {
			reading, err = d.Access.ExplainAt(r.Context(), r.Project.Project, page.Identity, page.Point, *at)
		}
		page.Reading = &reading
	}
	return r.Form(err, "access.html", page)
}

// identityList is a page of the list, with its filter.
type identityList struct {
	web.Part[directory.Identity]
	Prefix, Trait, Value string
	TraitKeys            []string
}

func (d Deps) identities(r *web.Request) (err error) {
	query := r.URL.Query()
	page := identityList{Prefix: query.Get("prefix"), Trait: query.Get("trait"), Value: query.Get("value")}
	if page.TraitKeys, err = d.Directory.TraitKeys(r.Context(), r.Project.Project); err != nil {
		return err
	}
	return web.List[directory.Identity]{
		Name: "identities", Columns: []string{"identity", "origin", "lastSeenAt", "createdAt", "updatedAt", "traits"},
		Cells: func(i directory.Identity) []any {
			return []any{i.Identity, i.Origin, i.LastSeenAt, i.CreatedAt, i.UpdatedAt, string(i.Traits)}
		},
		Read: func(after, before string, most int) (part web.Part[directory.Identity], err error) {
			listing, err := page.listing(after, before, most)
			if err == nil && listing.Value != nil && !r.SeesTexts() {
				err = web.NoTexts()
			}
			if err != nil {
				return part, err
			}
			found, err := d.Directory.IdentityPage(r.Context(), r.Project.Project, listing)
			if part.Items = found.List; !r.SeesTexts() {
				for i := range part.Items {
					part.Items[i].Traits = json.RawMessage(`{}`)
				}
			}
			part.Pager = web.PagerOf(found.Newer, found.Older, placeOf(found.Start), placeOf(found.End))
			if part.Pager.Total = web.Total(found.Total); found.TotalMore {
				part.Pager.Total = "at least " + part.Pager.Total
			}
			return part, err
		},
	}.Serve(r, "identities.html", &page, &page.Part)
}

// placeOf is a place in the list as a cursor, "" for none.
func placeOf(c *directory.Cursor) string {
	if c == nil {
		return ""
	}
	return requestlog.Cursor{At: c.CreatedAt, ID: c.ID}.String()
}

// listing is what the list asks for.
func (l identityList) listing(after, before string, most int) (directory.Listing, error) {
	listing := directory.Listing{Limit: most, Prefix: l.Prefix, Key: l.Trait}
	var problems fields.Problems
	check := func(name, value string, most int) bool {
		if value != "" {
			problems.CheckParameter(name, value, most)
		}
		return value != ""
	}
	check("prefix", l.Prefix, limit.Identity)
	if hasKey := check("trait", l.Trait, limit.TraitKey); check("value", l.Value, limit.TraitValue) {
		if listing.Value = &l.Value; !hasKey {
			problems.Add("value", "%s", words.valueWithoutKey)
		}
	}
	for text, place := range map[string]**directory.Cursor{after: &listing.After, before: &listing.Before} {
		if at, err := requestlog.ParseCursor(text); err == nil {
			*place = &directory.Cursor{CreatedAt: at.At, ID: at.ID}
		} else if text != "" {
			return listing, web.WrongPlace()
		}
	}
	return listing, problems.Err()
}

// identityPage is an identity, or the form of a new one.
type identityPage struct {
	directory.Identity
	IsNew bool `json:"-"`
	// Rows are the traits in the form, and TraitKeys what it suggests.
	Rows      []trait  `json:"-"`
	TraitKeys []string `json:"-"`
	// Audiences are those that it belongs to, with why. MoreAudiences is true if there are others.
	Audiences     []directory.Judgement `json:"audiences"`
	MoreAudiences bool                  `json:"moreAudiences"`
	// Wrote are the data points whose newest revision it wrote.
	Wrote datapoints.List `json:"wrote"`
	// Private are the data points that it alone may read.
	Private datapoints.List `json:"private"`
	// Recalls are the newest recalls as it.
	Recalls []requestlog.Hit `json:"recalls"`
	Events  []history.Event  `json:"events"`
	// Thing is the record in history.
	Thing string `json:"-"`
}

// trait is a trait in the form. Was and Before are its key and value when the form was shown, "" for a new one: a
// change by somebody else meanwhile stays.
type trait struct{ Key, Value, Was, Before string }

// emptyRows are the rows of a form for further traits.
const emptyRows = 3

// showIdentity shows an identity, or the form of a new one, with what is wrong with the form.
func (d Deps) showIdentity(r *web.Request, page identityPage, wrong error) (err error) {
	project, name := r.Project.Project, page.Identity.Identity
	if page.TraitKeys, err = d.Directory.TraitKeys(r.Context(), project); err != nil {
		return err
	}
	if !page.IsNew {
		var ok bool
		page.Identity, ok, err = d.Directory.Identity(r.Context(), project, name)
		if err = notFound(err, ok, words.noIdentity, name); err != nil {
			return err
		}
		if page.Audiences, page.MoreAudiences, err = d.Directory.Memberships(r.Context(), project, name); err != nil {
			return err
		}
		page.Thing = history.OfIdentity + ":" + stream.IdentityID(project.Namespace, name).String()
		if page.Events, err = d.History.Latest(r.Context(), r.HistoryViewer(), page.Thing, lastEvents); err != nil {
			return err
		}
		wrote := datapoints.ListQuery{Filter: datapoints.Filter{Author: name}, Limit: newest}
		if page.Wrote, err = d.Points.List(r.Context(), project.ID, wrote); err != nil {
			return err
		}
		private := datapoints.ListQuery{Filter: datapoints.Filter{AudienceID: page.PrivateAudience}, Limit: newest}
		if page.Private, err = d.Points.List(r.Context(), project.ID, private); err != nil {
			return err
		}
		from, to := r.Now().AddDate(0, 0, -recallDays), r.Now()
		page.Recalls, err = d.Calls.RecalledAs(r.Context(), project.ID, name, from, to, recalls)
		if err != nil {
			return err
		}
	}
	if wrong == nil && !page.IsNew {
		pairs, err := page.Pairs()
		if err != nil {
			return err
		}
		for _, p := range pairs {
			page.Rows = append(page.Rows, trait{p.Key, p.Value, p.Key, p.Value})
		}
	}
	page.Rows = append(page.Rows, make([]trait, emptyRows)...)
	return r.Form(wrong, "identity.html", page)
}

func (d Deps) identity(r *web.Request) error {
	return d.showIdentity(r, identityPage{Identity: directory.Identity{Identity: r.Part("identity")}}, nil)
}

func (d Deps) newIdentity(r *web.Request) error {
	return d.showIdentity(r, identityPage{IsNew: true}, nil)
}

// saveIdentity creates an identity, or changes the traits that the form changes.
func (d Deps) saveIdentity(r *web.Request) error {
	page := identityPage{Identity: directory.Identity{Identity: r.Raw("identity")}, IsNew: r.PostForm.Has("new")}
	name := page.Identity.Identity
	set, removed, err := page.read(r)
	if err == nil && page.IsNew {
		_, exists, found := d.Directory.Identity(r.Context(), r.Project.Project, name)
		err = notNew(found, exists, name)
	}
	if err == nil {
		_, err = d.Commands.PatchIdentity(r.Context(), r.Command(), name, set, removed)
	}
	if err == nil {
		return r.Done(r.ProjectPath("identities", name), "saved")
	}
	return d.showIdentity(r, page, err)
}

// read reads the rows of the form, and which traits it sets and removes. A row without a key or value is no trait.
func (p *identityPage) read(r *web.Request) (set map[string]string, removed []string, err error) {
	var problems fields.Problems
	problems.CheckParameter("identity", p.Identity.Identity, limit.Identity)
	set, has := map[string]string{}, map[string]bool{}
	for n := range r.PostForm["key"] {
		row := trait{at(r, "key", n), at(r, "value", n), at(r, "was", n), at(r, "before", n)}
		if row == (trait{}) {
			continue
		}
		p.Rows = append(p.Rows, row)
		same := row.Key == row.Was && row.Value == row.Before
		if !same && row.Was != "" {
			removed = append(removed, row.Was)
		}
		switch {
		case row.Key == "" && row.Value != "":
			problems.Add("a trait", "has a value and no name")
		case has[row.Key]:
			problems.Add("a trait", "%.80q is there twice", row.Key)
		case !same && row.Key != "" && row.Value != "":
			problems.CheckParameter("a trait", row.Key, limit.TraitKey)
			problems.CheckParameter("the value of "+row.Key, row.Value, limit.TraitValue)
			set[row.Key] = row.Value
		}
		has[row.Key] = has[row.Key] || same || row.Key != "" && row.Value != ""
	}
	removed = slices.DeleteFunc(removed, func(key string) bool { return has[key] })
	return set, removed, problems.Err()
}

// at is a field of a row of a form, "" for none.
func at(r *web.Request, name string, n int) string {
	if list := r.PostForm[name]; n < len(list) {
		return list[n]
	}
	return ""
}

func (d Deps) deleteIdentity(r *web.Request) error {
	err := d.Commands.DeleteIdentity(r.Context(), r.Command(), r.Raw("identity"))
	return r.Did(err, r.ProjectPath("identities"), "deleted")
}

// importPage is the form of an import with the preview of a file. The file itself stays in the form, so that nothing of
// it is stored before it is imported.
type importPage struct {
	Text string                   `json:"-"`
	File *identities.IdentityFile `json:"file,omitempty"`
	// New and Existing count the good rows. Shown are the first of them.
	New      int            `json:"new"`
	Existing int            `json:"existing"`
	Shown    []identity.Row `json:"-"`
	// Done is what an import did, nil before.
	Done *imported `json:"-"`
}

type imported struct{ Created, Updated int }

// shownRows is how many rows a preview shows.
const shownRows = 20

// Limits are what a file may have.
func (importPage) Limits() map[string]int64 {
	return map[string]int64{"Bytes": limit.IdentityFile, "Rows": limit.IdentityFileRows}
}

func (d Deps) importForm(r *web.Request) error {
	var page importPage
	var done imported
	if n, _ := fmt.Sscanf(r.URL.Query().Get("imported"), "%d-%d", &done.Created, &done.Updated); n == 2 {
		page.Done = &done
	}
	return r.Render("import.html", page)
}

func (d Deps) importFile(r *web.Request) error {
	var page importPage
	err := d.readFile(r, &page)
	do := r.Field("do")
	if err == nil && do == "import" && page.File.Bad > 0 {
		err = invalid(words.badRows, page.File.Bad)
	}
	if err != nil || do != "import" && do != "good" {
		return r.Form(err, "import.html", page)
	}
	rows := page.File.Rows
	created, updated, err := d.Commands.ImportIdentities(r.Context(), r.Command(), rows)
	if done := created + updated; err != nil && done > 0 {
		err = fault.New(fault.Conflict, fault.CodeConflict, words.partly, done, len(rows), httpx.Fault(err).Msg)
	}
	if err != nil {
		return r.Invalid(err, "import.html", page)
	}
	r.Redirect(fmt.Sprintf("%s?imported=%d-%d", r.ProjectPath("import-identities"), created, updated))
	return nil
}

// readFile reads the file of the form, or the text in it, and compares it with what is there.
func (d Deps) readFile(r *web.Request, page *importPage) error {
	page.Text = r.Raw("text")
	if files := r.Files("file"); len(files) > 0 {
		const most = limit.IdentityFile + 4 // a byte order mark and one byte too many
		text, err := io.ReadAll(io.LimitReader(files[0].Open(), most))
		if err != nil {
			return fmt.Errorf("read an upload: %w", err)
		}
		page.Text = string(text)
	}
	if page.Text == "" {
		return invalid("%s", words.noFile)
	}
	file, err := identities.ReadIdentityFile([]byte(page.Text))
	if err != nil {
		return err
	}
	names := make([]string, len(file.Rows))
	for n, row := range file.Rows {
		names[n] = row.Identity
	}
	page.File, page.Shown = &file, file.Rows[:min(len(file.Rows), shownRows)]
	page.New, err = d.Directory.Unknown(r.Context(), r.Project.Project, names)
	page.Existing = len(names) - page.New
	return err
}

// asOf is the time in the past that the URL asks about, nil for now. A day alone is its end.
func asOf(r *web.Request) (at *time.Time, err error) {
	text := r.URL.Query().Get("at")
	if text == "" {
		return at, nil
	}
	w, err := instant.ReadIn(text, r.Zone())
	if err != nil {
		return nil, invalid("as of: %v", err)
	}
	last, now := w.Last().UTC(), r.Now()
	if w.DateOnly && w.At.Before(now) && last.After(now) {
		last = now
	}
	if last.After(now) {
		return nil, invalid("%s", words.future)
	}
	return &last, nil
}

// pastAudience is what an audience was at a time.
type pastAudience struct {
	At time.Time `json:"at"`
	// Lost limits the members to who lost access since.
	Lost       bool           `json:"lost"`
	Definition *audience.Kind `json:"definition"`
	Rule       *audience.Rule `json:"rule,omitempty"`
	Erased     int64          `json:"erasedSince"`
}

// membersAt reads a part of the members at a time.
func (d Deps) membersAt(
	r *web.Request, slug string, past *pastAudience, after, before string, most int,
) (web.Part[directory.Member], error) {
	return web.Forwards(after, before, func(at string) ([]directory.Member, string, error) {
		listing := directory.PastListing{At: past.At, Lost: past.Lost, Limit: most}
		if at != "" {
			place, err := uuid.Parse(at)
			if err != nil {
				return nil, "", web.WrongPlace()
			}
			listing.After = place
		}
		found, ok, err := d.Directory.MembersAt(r.Context(), r.Project.Project, slug, listing)
		if err = notFound(err, ok, words.noAudience, slug); err != nil {
			return nil, "", err
		}
		past.Definition, past.Rule, past.Erased = found.Definition, found.Rule, found.Erased
		next := ""
		if found.Next {
			next = found.End.String()
		}
		return found.List, next, nil
	})
}

// Losses are links to who lost access in some days.
func (p audiencePage) Losses(r *web.Request) (list []web.Link) {
	for _, days := range []int{1, 7, 30, 365} {
		at := r.Now().AddDate(0, 0, -days).Truncate(time.Second).Format(time.RFC3339)
		list = append(list, web.Link{Text: strconv.Itoa(days) + " d", Path: r.With("at", at, "lost", "1")})
	}
	return list
}
