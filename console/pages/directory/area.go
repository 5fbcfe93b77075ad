// Package directory is the pages of the identities of a project, of its audiences, and of who may read what.
package directory

import (
	"embed"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
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
