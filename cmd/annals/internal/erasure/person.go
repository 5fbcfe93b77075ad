// Package erasure erases a person from a project for the operator, and prints what is erased and what waits for it.
// The command is in cmd/annals, the erasure itself below commands.
package erasure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/terminal"
	erasing "github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/erasure"
	"github.com/annals-project/annals/eventstore/backoff"
)

// OfPerson is the erasure of a person.
type OfPerson struct {
	Server *operatorapi.Client
	Person operatorapi.PersonRequest
	// Yes erases without asking.
	Yes      bool
	Terminal terminal.Streams
	// Deleted receives a line for each deletion at once: a later failure must not hide it.
	Deleted io.Writer
}

// PersonSummary is what the erasure of a person prints.
type PersonSummary struct {
	Project  string `json:"project"`
	Identity string `json:"identity"`
	// DataPoints were deleted, with these receipts.
	DataPoints int               `json:"dataPoints"`
	Receipts   []erasure.Receipt `json:"receipts"`
	// Record reports whether the directory record was removed, Calls how many calls were blanked.
	Record bool `json:"record"`
	Calls  int  `json:"calls"`
	// Erased is null if another process erases.
	Erased *erasing.Report `json:"erased"`
	// uncleaned counts the deletions of the project that are not erased yet.
	uncleaned int
	// known reports whether the project held something of the identity.
	known bool
}

// Run begins the erasure of the person, or finds one that is going on, and watches it until it has ended. The service
// continues it by itself, whatever becomes of this process.
func (p OfPerson) Run(ctx context.Context) (out PersonSummary, err error) {
	found, err := operatorapi.FindPerson.Call(ctx, p.Server, p.Person)
	if err != nil {
		return out, err
	}
	if err := p.confirm(found); err != nil {
		return out, err
	}
	begun, err := operatorapi.ErasePerson.Call(ctx, p.Server, p.Person)
	if err != nil {
		return out, err
	}
	status, err := p.watch(ctx, begun)
	if err != nil {
		return out, err
	}
	out = PersonSummary{
		Project: p.Person.Project, Identity: p.Person.Identity, Receipts: status.Receipts, Record: status.Record,
		Calls: status.Calls, Erased: status.Erased, uncleaned: status.Uncleaned,
		known: found.HasRecord || found.Removing || found.Newest+found.Earlier > 0 ||
			status.Record || status.Called,
	}
	for _, r := range status.Receipts {
		out.DataPoints += r.DataPoints
	}
	if status.WroteAgain {
		err = fmt.Errorf("%s wrote again after it was deleted: stop the program that sends, "+
			"and run the same command again", p.Person.Identity)
	}
	return out, err
}

// watch returns the state of an erasure once it has ended, or waits for another operation. It shows the deletions
// meanwhile.
func (p OfPerson) watch(
	ctx context.Context, begun operatorapi.PersonErasureID,
) (status erasing.PersonStatus, err error) {
	shown := 0
	for wait := (backoff.Backoff{First: 50 * time.Millisecond, Longest: time.Second}); ; err = wait.Wait(ctx) {
		if err == nil {
			status, err = operatorapi.PersonErasure.Call(ctx, p.Server, begun)
		}
		switch {
		case ctx.Err() != nil:
			return status, errors.New("interrupted, but the service goes on; run the same command again to look")
		case err != nil:
			return status, fmt.Errorf("%w; the service goes on once it runs, run the same command again to look", err)
		}
		for _, r := range status.Receipts[shown:] {
			_, _ = fmt.Fprintf(p.Deleted, "deleted %s, receipt %s\n",
				english.Plural(r.DataPoints, "data point", "data points"), r.OperationID)
		}
		shown = len(status.Receipts)
		switch {
		case status.Failure != "":
			return status, fmt.Errorf("%s; the service tries again, run the same command again to look", status.Failure)
		case status.Phase == erasure.Done, status.Waits:
			return status, nil
		}
	}
}

// confirm shows what would be erased, and asks.
func (p OfPerson) confirm(found erasing.Person) error {
	text := fmt.Sprintf("%s wrote %s of project %s", p.Person.Identity,
		english.Plural(found.Newest+found.Earlier, "data point", "data points"), p.Person.Project)
	if found.Earlier > 0 {
		text += fmt.Sprintf(" (%d of them were revised by others since)", found.Earlier)
	}
	text += " and has no record."
	if found.HasRecord {
		text = strings.TrimSuffix(text, "no record.") + "a record."
	}
	if p.Yes {
		_, _ = fmt.Fprintln(p.Terminal.Out, text)
		return nil
	}
	yes, err := p.Terminal.Ask(text + "\nErase all of it? It cannot be brought back.")
	if err != nil {
		return fmt.Errorf("%s To erase that, add --yes: %w", text, err)
	}
	if !yes {
		return errors.New("nothing was erased")
	}
	return nil
}

// Print writes the summary as text.
func (s PersonSummary) Print(to io.Writer) {
	record := "no record was left"
	if s.Record {
		record = "removed"
	}
	_, _ = fmt.Fprintf(to, "data points deleted: %d\nrecord: %s\ncalls blanked: %d\n", s.DataPoints, record,
		s.Calls)
	if s.Erased != nil {
		PrintErased(to, *s.Erased)
	}
}

// UnknownError means that a project held nothing of an identity. Calls of the request log were blanked all the same: an
// interrupted run may have left the name in them.
type UnknownError struct {
	Identity, Project string
	Calls             int
}

func (e *UnknownError) Error() string {
	also := ""
	if e.Calls > 0 {
		also = fmt.Sprintf(", but %s of the request log lost their texts", english.Plural(e.Calls, "call", "calls"))
	}
	return fmt.Sprintf("%q is not known in project %s: there was nothing to erase%s; look at how the identity is "+
		"written (one that was erased before is not known either)", e.Identity, e.Project, also)
}

// Err is what ends the command after the summary.
func (s PersonSummary) Err() error {
	if s.uncleaned == 0 && s.DataPoints == 0 && !s.known {
		return &UnknownError{s.Identity, s.Project, s.Calls}
	}
	if s.uncleaned == 0 {
		return nil
	}
	return fmt.Errorf("%s of the project must wait: run the same command again later",
		english.Plural(s.uncleaned, "deletion", "deletions"))
}
