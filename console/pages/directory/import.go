package directory

import (
	"io"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/httpx"
)

// importPage is the form of an import with the preview of a file. The file itself stays in the form, so that nothing of
// it is stored before it is imported.
type importPage struct {
	Text string                 `json:"-"`
	File *commands.IdentityFile `json:"file,omitempty"`
	// New and Existing count the good rows. Shown are the first of them.
	New      int            `json:"new"`
	Existing int            `json:"existing"`
	Shown    []identity.Row `json:"-"`
	// Created and Updated are what an import has done. Done is true after one.
	Created, Updated int   `json:"-"`
	Done             bool  `json:"-"`
	MaxBytes         int64 `json:"-"`
	MaxRows          int   `json:"-"`
}

// shownRows is how many rows a preview shows.
const shownRows = 20

func newImport() importPage {
	return importPage{MaxBytes: limit.IdentityFile, MaxRows: limit.IdentityFileRows}
}

func (d Deps) importForm(r *web.Request) error {
	page, query := newImport(), r.URL.Query()
	if page.Done = query.Has("created"); page.Done {
		page.Created, _ = strconv.Atoi(query.Get("created"))
		page.Updated, _ = strconv.Atoi(query.Get("updated"))
	}
	return r.Render("import.html", page)
}

func (d Deps) importFile(r *web.Request) error {
	page := newImport()
	var err error
	if page.Text, err = fileOf(r); err != nil {
		return r.Invalid(err, "import.html", page)
	}
	file, err := commands.ReadIdentityFile([]byte(page.Text))
	if err != nil {
		return r.Invalid(err, "import.html", page)
	}
	page.File, page.Shown = &file, file.Rows[:min(len(file.Rows), shownRows)]
	if page.New, page.Existing, err = d.countKnown(r, file.Rows); err != nil {
		return err
	}
	switch do := r.Field("do"); {
	case do == "import" && file.Bad > 0:
		return r.Invalid(invalid(words.badRows, file.Bad), "import.html", page)
	case do != "import" && do != "good":
		return r.Render("import.html", page)
	}
	created, updated, err := d.Commands.ImportIdentities(r.Context(), r.Command(), file.Rows)
	if err != nil && created+updated > 0 {
		err = fault.New(fault.Conflict, fault.CodeConflict, words.partly, created+updated, len(file.Rows),
			httpx.Fault(err).Msg)
	}
	if err != nil {
		return r.Invalid(err, "import.html", page)
	}
	r.Redirect(r.ProjectPath("identities", "import") + "?created=" + strconv.Itoa(created) + "&updated=" +
		strconv.Itoa(updated))
	return nil
}

// fileOf returns the file of the form, or the text in it.
func fileOf(r *web.Request) (string, error) {
	file, _, err := r.FormFile("file")
	if err == http.ErrMissingFile || err == http.ErrNotMultipart { //nolint:errorlint // returned as they are
		if text := r.Raw("text"); text != "" {
			return text, nil
		}
		return "", invalid("%s", words.noFile)
	}
	if err != nil {
		return "", invalid("%s", words.noFile)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, limit.IdentityFile+4)) // a byte order mark and one byte too many
	return string(text), err
}

// countKnown counts the rows of identities that are new, and of others.
func (d Deps) countKnown(r *web.Request, rows []identity.Row) (created, existing int, err error) {
	ids := make([]uuid.UUID, len(rows))
	for n, row := range rows {
		ids[n] = stream.IdentityID(r.Project.Project.Namespace, row.Identity)
	}
	known, err := d.Directory.Known(r.Context(), r.Project.Project, ids)
	return len(rows) - len(known), len(known), err
}
