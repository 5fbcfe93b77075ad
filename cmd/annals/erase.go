package main

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
	"github.com/annals-project/annals/internal/work"
)

// EraseCmd is "annals erase".
type EraseCmd struct {
	operatorapi.WhoFlags
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	Now     bool   `name:"now" help:"Erase all that was deleted, from tables, index and event store, and wait until that is done."`
	OrgFlag
	Project  string `name:"project" placeholder:"SLUG" help:"Project of the identity."`
	Identity string `name:"identity" placeholder:"NAME" help:"Erase a person: everything that this identity wrote in the project, its record, and its name in the request log."`
	Resends  bool   `name:"with-resends" help:"With --identity: without effect, for scripts that have it. Nothing that others wrote holds the name of a person who sent it again."`
	Yes      bool   `name:"yes" help:"Erase the person without asking."`
	JSON     bool   `name:"json" help:"Print the answer as one JSON value."`
}

// Validate is called by the parser.
func (c *EraseCmd) Validate() error {
	switch {
	case c.Identity == "" && (c.Project != "" || c.Org != "" || c.Yes || c.Resends):
		return errors.New("--project, --org, --yes and --with-resends need --identity")
	case c.Identity != "" && c.Project == "":
		return errors.New("--identity needs --project")
	case c.Identity != "" && c.Now:
		return errors.New("--identity does not go with --now: it erases at once")
	}
	return nil
}

// Run shows what waits to be erased, or erases it.
func (c *EraseCmd) Run(ctx context.Context, env *Env) error {
	server := operatorapi.Dial(c.DataDir)
	if c.Identity != "" {
		return c.erasePerson(ctx, env, server)
	}
	if !c.Now {
		pending, err := operatorapi.PendingErasures.Call(ctx, server, operatorapi.None{})
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(env.Stdout, pending)
		}
		printPending(env.Stdout, pending)
		return nil
	}
	done, err := operatorapi.EraseNow.Call(ctx, server, operatorapi.None{})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, done)
	}
	printErased(env.Stdout, done)
	return nil
}

func (c *EraseCmd) erasePerson(ctx context.Context, env *Env, server *operatorapi.Client) error {
	target, err := c.target()
	if err != nil {
		return err
	}
	of := personErasure{
		Server: server, Yes: c.Yes, Terminal: env.terminal(), Deleted: io.Discard,
		Person: operatorapi.PersonRequest{
			Target: target, Project: c.Project, Identity: c.Identity,
		},
	}
	if !c.JSON {
		of.Deleted = env.Stdout
	}
	sum, err := of.Run(ctx)
	if err != nil {
		return err
	}
	return printSummary(env.Stdout, sum, c.JSON)
}

// personErasure is the erasure of a person.
type personErasure struct {
	Server *operatorapi.Client
	Person operatorapi.PersonRequest
	// Yes erases without asking.
	Yes      bool
	Terminal terminal.Streams
	// Deleted receives a line for each deletion at once: a later failure must not hide it.
	Deleted io.Writer
}

// personErasureSummary is what the erasure of a person prints.
type personErasureSummary struct {
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
func (p personErasure) Run(ctx context.Context) (out personErasureSummary, err error) {
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
	out = personErasureSummary{
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
func (p personErasure) watch(
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
func (p personErasure) confirm(found erasing.Person) error {
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
func (s personErasureSummary) Print(to io.Writer) {
	record := "no record was left"
	if s.Record {
		record = "removed"
	}
	_, _ = fmt.Fprintf(to, "data points deleted: %d\nrecord: %s\ncalls blanked: %d\n", s.DataPoints, record,
		s.Calls)
	if s.Erased != nil {
		printErased(to, *s.Erased)
	}
}

// unknownPersonError means that a project held nothing of an identity. Calls of the request log were blanked all the
// same: an interrupted run may have left the name in them.
type unknownPersonError struct {
	Identity, Project string
	Calls             int
}

func (e *unknownPersonError) Error() string {
	also := ""
	if e.Calls > 0 {
		also = fmt.Sprintf(", but %s of the request log lost their texts", english.Plural(e.Calls, "call", "calls"))
	}
	return fmt.Sprintf("%q is not known in project %s: there was nothing to erase%s; look at how the identity is "+
		"written (one that was erased before is not known either)", e.Identity, e.Project, also)
}

// Err is what ends the command after the summary.
func (s personErasureSummary) Err() error {
	if s.uncleaned == 0 && s.DataPoints == 0 && !s.known {
		return &unknownPersonError{s.Identity, s.Project, s.Calls}
	}
	if s.uncleaned == 0 {
		return nil
	}
	return fmt.Errorf("%s of the project must wait: run the same command again later",
		english.Plural(s.uncleaned, "deletion", "deletions"))
}

// printErased writes what an erasure did and what is left, as text.
func printErased(to io.Writer, done erasing.Report) {
	_, _ = fmt.Fprintf(to, "deletions cleaned: %d\nremoved identities cleared: %d\nstreams ended: %d\n"+
		"blobs swept: %d\ntables vacuumed: %d\nindexes rewritten: %d\nevent store: %s\n",
		done.Deletions, done.Identities, done.Streams, done.Blobs, done.Tables, done.Indexes, done.Store)
	printPending(to, done.Left)
}

// printPending writes what waits to be erased, as text.
func printPending(to io.Writer, p work.Open) {
	if p.FanOuts+p.Deletions+p.Identities+p.Blobs == 0 {
		_, _ = fmt.Fprintln(to, "nothing waits to be erased")
		return
	}
	_, _ = fmt.Fprintf(to, "waiting: %s of %s, %s to be completed",
		english.Plural(p.Deletions, "deletion", "deletions"),
		english.Plural(p.DataPoints, "data point", "data points"),
		english.Plural(p.FanOuts, "operation", "operations"))
	if p.Identities > 0 {
		_, _ = fmt.Fprintf(to, ", %s", english.Plural(p.Identities, "removed identity", "removed identities"))
	}
	if p.Blobs > 0 {
		_, _ = fmt.Fprintf(to, ", %d texts of sends that were never stored", p.Blobs)
		if p.Until != nil {
			_, _ = fmt.Fprintf(to, " (until %s)", p.Until.UTC().Format(time.RFC3339))
		}
	}
	_, _ = fmt.Fprintln(to)
}
