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
	"github.com/annals-project/annals/commands/erasure"
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
	// DataPoints were deleted by this run, with these receipts.
	DataPoints int                         `json:"dataPoints"`
	Receipts   []operatorapi.PersonReceipt `json:"receipts"`
	// Record reports whether this run removed the directory record, Calls how many calls it blanked.
	Record bool `json:"record"`
	Calls  int  `json:"calls"`
	// Erased is null if another process erases.
	Erased *erasure.Report `json:"erased"`
	// uncleaned counts the deletions of the project that are not erased yet.
	uncleaned int
	// known reports whether the project held something of the identity.
	known bool
}

// personRounds is how often a person is erased who keeps on writing.
const personRounds = 3

// Run erases the person. Each step may be repeated, so that a run continues what another one began.
func (p OfPerson) Run(ctx context.Context) (out PersonSummary, err error) {
	found, err := operatorapi.FindPerson.Call(ctx, p.Server, p.Person)
	if err != nil {
		return out, err
	}
	if err := p.confirm(found); err != nil {
		return out, err
	}
	out = PersonSummary{
		Project: p.Person.Project, Identity: p.Person.Identity, Receipts: []operatorapi.PersonReceipt{},
		known: found.HasRecord || found.Newest+found.Earlier+found.Uncleaned > 0,
	}
	for range personRounds {
		if found, err = p.once(ctx, &out); err != nil {
			if ctx.Err() != nil {
				err = errors.New("interrupted")
			}
			return out, fmt.Errorf("%w; run the same command again to go on", err)
		}
		if found.Newest+found.Earlier == 0 && !found.HasRecord {
			out.uncleaned = found.Uncleaned
			return out, nil
		}
	}
	return out, fmt.Errorf("%s wrote again after it was deleted: stop the program that sends, "+
		"and run the same command again", p.Person.Identity)
}

// confirm shows what would be erased, and asks.
func (p OfPerson) confirm(found operatorapi.Person) error {
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

// once takes every step once, and returns what is found of the person after that.
func (p OfPerson) once(ctx context.Context, out *PersonSummary) (operatorapi.Person, error) {
	in, server := p.Person, p.Server
	for more := true; more; {
		deleted, err := operatorapi.DeletePerson.Call(ctx, server, in)
		if err != nil {
			return operatorapi.Person{}, err
		}
		more = deleted.More
		for _, r := range deleted.Receipts {
			out.Receipts, out.DataPoints = append(out.Receipts, r), out.DataPoints+r.DataPoints
			_, _ = fmt.Fprintf(p.Deleted, "deleted %s, receipt %s\n",
				english.Plural(r.DataPoints, "data point", "data points"), r.OperationID)
		}
	}
	forgotten, err := operatorapi.ForgetPerson.Call(ctx, server, in)
	if err != nil {
		return operatorapi.Person{}, err
	}
	out.Record, out.Calls = out.Record || forgotten.Record, out.Calls+forgotten.Calls
	out.known = out.known || forgotten.Record || forgotten.Called
	found, err := operatorapi.FindPerson.Call(ctx, server, in)
	if err != nil {
		return found, err
	}
	in.Since = found.Position
	erased, err := operatorapi.EraseNow.Call(ctx, server, operatorapi.None{})
	if err == nil {
		out.Erased = &erased
	} else if !errors.Is(err, operatorapi.ErrRefused) {
		return found, err
	}
	return awaitErased(ctx, server, in, erased)
}

// awaitErased waits until the deletions of the person are erased. It waits for other processes only if this one has
// not erased by itself.
func awaitErased(
	ctx context.Context, server *operatorapi.Client, in operatorapi.PersonRequest, erased erasure.Report,
) (found operatorapi.Person, err error) {
	for p := (backoff.Backoff{First: 200 * time.Millisecond, Longest: 5 * time.Second}); ; {
		found, err = operatorapi.FindPerson.Call(ctx, server, in)
		if err != nil || found.Uncleaned == 0 || erased.Store != "" {
			return found, err
		}
		if err := p.Wait(ctx); err != nil {
			return found, fmt.Errorf("%d deletions of the project are not erased yet: %w", found.Uncleaned, err)
		}
	}
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
