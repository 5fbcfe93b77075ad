// Package directory is the pages of the identities of a project, of its audiences, and of who may read what.
package directory

import (
	"embed"
	"slices"
	"strings"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/explain"
	"github.com/annals-project/annals/projections/history"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read and change.
type Deps struct {
	Directory *directory.Queries
	Commands  *commands.Service
	Points    datapoints.Queries
	Access    explain.Access
	History   history.Queries
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

// Area returns the pages.
func Area(d Deps) web.Area {
	const p = "/p/{project}/"
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET " + p + "identities", Needs: web.Read, Serve: d.identities},
		{Pattern: "GET " + p + "identities/{identity}", Needs: web.Read, Serve: d.identity},
		{Pattern: "GET " + p + "new-identity", Needs: web.Write, Serve: d.newIdentity},
		{Pattern: "POST " + p + "identity", Needs: web.Write, Live: true, Body: traitsForm, Serve: d.saveIdentity},
		{Pattern: "POST " + p + "identity/delete", Needs: web.Write, Live: true, Serve: d.deleteIdentity},
		{Pattern: "GET " + p + "identities/import", Needs: web.Write, Serve: d.importForm},
		{
			Pattern: "POST " + p + "identities/import", Needs: web.Write, Live: true, Body: fileForm, Time: longTime,
			Serve: d.importFile,
		},
		{Pattern: "GET " + p + "audiences", Needs: web.Read, Serve: d.audiences},
		{Pattern: "GET " + p + "audiences/{slug}", Needs: web.Read, Serve: d.audience},
		{Pattern: "GET " + p + "audiences/{slug}/edit", Needs: web.Write, Serve: d.editAudience},
		{Pattern: "GET " + p + "new-audience", Needs: web.Write, Serve: d.newAudience},
		{
			Pattern: "POST " + p + "new-audience", Needs: web.Write, Live: true, Body: listForm, Time: longTime,
			Serve: d.saveAudience,
		},
		{Pattern: "POST " + p + "audiences/{slug}/recompute", Needs: web.Write, Live: true, Serve: d.recomputeAudience},
		{Pattern: "POST " + p + "audiences/{slug}/delete", Needs: web.Write, Live: true, Serve: d.deleteAudience},
		{Pattern: "GET " + p + "access", Needs: web.Read, Serve: d.access},
	}}
}

// pageSize is how many identities, audiences and members a page lists.
const pageSize = 50

// rows writes a list as a file, in parts, with at most web.MaxTotal rows.
func rows(
	r *web.Request, name string, columns []string, next func() (part [][]string, more bool, err error),
) error {
	return r.Rows(name, columns, func(yield func([]string, error) bool) {
		for n, more := 0, true; more && n < web.MaxTotal; {
			var part [][]string
			var err error
			if part, more, err = next(); err != nil {
				yield(nil, err)
				return
			}
			for _, row := range part {
				if n++; !yield(row, nil) {
					return
				}
			}
		}
	})
}

// links are what pages link to.
type links struct{ project string }

func linksOf(r *web.Request) links { return links{r.Project.Project.Slug} }

// To is the page of an identity.
func (l links) To(name string) string {
	if hasOtherMeaning(name) {
		name = "~" + name
	}
	return web.Path("p", l.project, "identities", name)
}

// identityOf is the identity of the path.
func identityOf(r *web.Request) string {
	name := r.Part("identity")
	if hasOtherMeaning(name) {
		name = strings.TrimPrefix(name, "~")
	}
	return name
}

// hasOtherMeaning reports whether a name means something else in a path, after any tildes, of which the path has one
// more.
func hasOtherMeaning(name string) bool {
	return slices.Contains([]string{".", "..", "import"}, strings.TrimLeft(name, "~"))
}

// words are the messages of these pages that are in no template.
var words = struct{ noIdentity, noAudience, valueWithoutKey, noCursor, tooMany, badRows, partly, noFile, field string }{
	noIdentity: "the project has no identity %.80q", noAudience: "the project has no audience %.80q",
	valueWithoutKey: "a value belongs to a trait: name the trait too",
	noCursor:        "the link to this page of the list is damaged",
	tooMany:         "these would be more than %d identities", field: "%s %v", noFile: "choose a file, or paste its text",
	badRows: "%d rows have a problem, so nothing was imported: mend the file, or import the rows without a problem",
	partly:  "%d of %d rows are imported, then it stopped: %s. To import the file again is safe",
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, format, args...)
}

func notFound(format, name string) error {
	return fault.New(fault.NotFound, fault.CodeNotFound, format, name)
}
