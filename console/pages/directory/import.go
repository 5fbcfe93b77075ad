package directory

import (
	"fmt"
	"io"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
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
	file, err := commands.ReadIdentityFile([]byte(page.Text))
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
