package transfer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dustin/go-humanize/english"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/projections/export"
)

// PersonExport is the copy of a person by a server of this machine.
type PersonExport struct {
	From    *operatorapi.Client
	Request export.PersonRequest
}

// PersonCopy is what the export of a person prints.
type PersonCopy struct {
	File string `json:"file"`
	export.PersonSummary
}

// Lines writes the lines to out.
func (e PersonExport) Lines(ctx context.Context, out io.Writer) (sum export.PersonSummary, err error) {
	lines := bufio.NewWriterSize(out, 256<<10)
	sum, err = e.From.ExportPerson(ctx, e.Request, lines)
	return sum, errors.Join(interrupted(ctx, err), lines.Flush())
}

// File writes the lines to a new file. A copy that stops leaves none: it shows one time, and is made again.
func (e PersonExport) File(ctx context.Context, path string) (sum PersonCopy, err error) {
	part, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return sum, fmt.Errorf("open the file of a copy: %w", err)
	}
	sum.File = path
	if sum.PersonSummary, err = e.Lines(ctx, part); err == nil {
		err = part.Sync()
	}
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Link(part.Name(), path) // a link replaces no file
	}
	return sum, errors.Join(err, os.Remove(part.Name()))
}

// Print writes the summary as text.
func (c PersonCopy) Print(out io.Writer) error {
	_, err := fmt.Fprintf(out, "%s and %s in %s\n", english.Plural(c.Texts, "text", "texts"),
		english.Plural(c.Memories, "memory", "memories"), c.File)
	if err == nil && !c.HasRecord && c.Texts == 0 {
		_, err = fmt.Fprintln(out, "the project holds nothing of this identity: look at how the name is written")
	}
	if c.Naming == nil || err != nil {
		return err
	}
	least := ""
	if c.MoreNaming {
		least = "at least "
	}
	_, err = fmt.Fprintf(out, "texts of others that name the person: %s%d; they are not in it\n", least, *c.Naming)
	return err
}
