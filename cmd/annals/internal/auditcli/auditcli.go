// Package auditcli is the commands of the group "annals audit". They call the server that runs on a data folder.
package auditcli

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/internal/auditfiles"
	"github.com/annals-project/annals/projections/audit/prove"
	"github.com/annals-project/annals/projections/audit/state"
	"github.com/annals-project/annals/projections/audit/verify"
	"github.com/annals-project/annals/projections/reads/shown"
	"github.com/annals-project/annals/projections/why"
)

// Flags are those of every command.
type Flags struct {
	operatorapi.WhoFlags
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
}

func (f Flags) server() *operatorapi.Client { return operatorapi.Dial(f.DataDir) }

// StatusCmd is "annals audit status".
type StatusCmd struct {
	Flags
	Org string `name:"org" placeholder:"NAME|ID" help:"Organization; default all, and the deployment."`
}

// Run prints how far each tree is signed.
func (c *StatusCmd) Run(ctx context.Context, to io.Writer) error {
	list := []state.State{}
	in := operatorapi.AuditRequest{Organization: c.Org, All: true}
	err := operatorapi.AuditStatus.Call(ctx, c.server(), in, func() {}, func(s state.State) error {
		if list = append(list, s); c.JSON {
			return nil
		}
		_, err := io.WriteString(to, words(s, time.Now()))
		return err
	})
	if err != nil || !c.JSON {
		return err
	}
	return printJSON(to, map[string]any{"trees": list})
}

func printJSON(to io.Writer, value any) error {
	enc := json.NewEncoder(to)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// treeName names a tree.
func treeName(organization uuid.UUID, name string) string {
	switch {
	case organization == uuid.Nil:
		return "the deployment"
	case name == "":
		return organization.String()
	}
	return name + " (" + organization.String() + ")"
}

// words describe a state.
func words(s state.State, now time.Time) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(&b, "  %-12s %s\n", name+":", fmt.Sprintf(format, args...))
	}
	b.WriteString(treeName(s.Organization, s.Name) + "\n")
	line("events", "%d, %d without a checkpoint", s.Events, s.Uncovered)
	if s.Checkpoint == nil {
		line("checkpoint", "none yet")
	} else {
		line("checkpoint", "%d events, %s", s.Checkpoint.Events, ago(s.Checkpoint.At, now))
	}
	if !s.Since.IsZero() {
		line("waits", "for a checkpoint since %s", ago(s.Since, now))
	}
	if s.Cosigned != nil {
		line("cosigned", "%d events, %s", s.Cosigned.Events, ago(s.Cosigned.At, now))
	}
	for _, c := range s.Copies {
		lag := "has the last checkpoint"
		if !c.Since.IsZero() {
			lag = "waits for a newer one since " + ago(c.Since, now)
		}
		line("copy", "%s: %d events, %s", c.Place, c.Events, lag)
	}
	if s.Origin != "" {
		line("origin", "%s", s.Origin)
	}
	for _, key := range s.Keys {
		line("key", "%s", key)
	}
	return b.String()
}

// ago is a time with its age.
func ago(at, now time.Time) string {
	return fmt.Sprintf("%s (%s ago)", at.UTC().Format(time.RFC3339), max(0, now.Sub(at)).Truncate(time.Second))
}

// VerifyCmd is "annals audit verify".
type VerifyCmd struct {
	Flags
	Since string `name:"since" placeholder:"FILE" help:"A checkpoint that you kept: the log must go on from it."`
}

// progressEvery is the least time between two lines of progress.
const progressEvery = 5 * time.Second

// maxCheckpoint is the most bytes of a checkpoint with its signatures.
const maxCheckpoint = 1 << 20

// Run verifies the log. Its error is something that is wrong, or that prevents it.
func (c *VerifyCmd) Run(ctx context.Context, to io.Writer) error {
	in := operatorapi.VerifyRequest{}
	if c.Since != "" {
		text, err := readCheckpoint(c.Since)
		if err != nil {
			return err
		}
		in.Since = text
	}
	var report *verify.Report
	shown := time.Now()
	err := operatorapi.VerifyAudit.Call(ctx, c.server(), in, func() {}, func(v operatorapi.Verifying) error {
		if report = v.Report; report != nil || c.JSON || time.Since(shown) < progressEvery {
			return nil
		}
		shown = time.Now()
		_, err := fmt.Fprintf(to, "%d events, position %d of %d\n", v.Events, v.At, v.Head)
		return err
	})
	if err == nil && report == nil {
		err = errors.New("the server stopped before the verification was done")
	}
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(to, report)
	} else {
		_, err = io.WriteString(to, verified(*report))
	}
	if err == nil && report.Finding != nil {
		err = errors.New("the audit log is not what the log and its checkpoints say")
	}
	return err
}

func readCheckpoint(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxCheckpoint))
	return text, errors.Join(err, file.Close())
}

// verified describes a report.
func verified(r verify.Report) string {
	var b strings.Builder
	for _, t := range r.Trees {
		name := t.Organization.String()
		if t.Organization == uuid.Nil {
			name = "the deployment"
		}
		_, _ = fmt.Fprintf(&b, "%s: leaves %d, checked %d; checkpoints %d, the newest covers %d\n", name, t.Size,
			t.Checked, t.Checkpoints, t.Covered)
	}
	_, _ = fmt.Fprintf(&b, "events read: %d, up to position %d; without a checkpoint yet: %d\n", r.Events, r.Head,
		r.Uncovered())
	f := r.Finding
	if f == nil {
		b.WriteString("nothing is wrong\n")
		return b.String()
	}
	name := "organization " + f.Organization.String()
	if f.Organization == uuid.Nil {
		name = "the deployment"
	}
	_, _ = fmt.Fprintf(&b, "WRONG: %s, leaf %d of the tree of %s", f.What, f.Index, name)
	if f.Stream != "" {
		_, _ = fmt.Fprintf(&b, ", event %s, revision %d of stream %s", f.EventID, f.Revision, f.Stream)
	}
	_, _ = fmt.Fprintf(&b, ": %s\n", f.Detail)
	return b.String()
}

// ProveCmd is "annals audit prove".
type ProveCmd struct {
	Flags
	Org      string `name:"org" placeholder:"NAME|ID" help:"Organization; default the only one."`
	Kind     string `arg:"" enum:"ingestion,source,request,deletion" help:"What it is: an ingestion, a source, a request or a deletion."`
	ID       string `arg:"" help:"Its id; that of a source is the one that it was sent with."`
	Project  string `name:"project" placeholder:"SLUG" help:"Project of it; a source needs one."`
	Out      string `name:"out" default:"." placeholder:"DIR" help:"Folder to write the files to."`
	WithSalt bool   `name:"with-salt" help:"Put the events themselves into the files, with their texts and salts: such a file confirms the text as long as it exists, also after an erasure."`
}

// Validate is called by the parser.
func (c *ProveCmd) Validate() error {
	if c.Project == "" && (c.WithSalt || c.Kind == string(prove.Source)) {
		return errors.New("--project is missing: a source, and --with-salt, need it")
	}
	return nil
}

// proved is a file that was written.
type proved struct {
	File  string `json:"file"`
	Bytes int    `json:"bytes"`
}

// Run writes the proofs.
func (c *ProveCmd) Run(ctx context.Context, to io.Writer) (err error) {
	if err := os.MkdirAll(c.Out, 0o700); err != nil {
		return err
	}
	dir, err := os.OpenRoot(c.Out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	do, list := operatorapi.Prove, []proved{}
	if c.WithSalt {
		do = operatorapi.ProveWithSalt
	}
	in := operatorapi.ProveRequest{Organization: c.Org, Project: c.Project, Kind: prove.Kind(c.Kind), ID: c.ID}
	err = do.Call(ctx, c.server(), in, func() {}, func(f prove.File) error {
		list = append(list, proved{f.Name, len(f.Data)})
		return dir.WriteFile(f.Name, f.Data, 0o600)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(to, map[string]any{"files": list, "withSalt": c.WithSalt})
	}
	for _, f := range list {
		if _, err := fmt.Fprintln(to, f.File); err != nil {
			return err
		}
	}
	if c.WithSalt {
		_, err = fmt.Fprintln(to, "These files hold the events themselves: each confirms its text as long as it exists, "+
			"also after the text is erased.")
	}
	return err
}

// TreeFlags name a tree.
type TreeFlags struct {
	Org        string `name:"org" placeholder:"NAME|ID" help:"Organization; default the only one."`
	Deployment bool   `name:"deployment" help:"The tree of the deployment instead: events that belong to no organization."`
}

// Validate is called by the parser.
func (f TreeFlags) Validate() error {
	if f.Deployment && f.Org != "" {
		return errors.New("--deployment does not go with --org")
	}
	return nil
}

func (f TreeFlags) request() operatorapi.AuditRequest {
	return operatorapi.AuditRequest{Organization: f.Org, Deployment: f.Deployment}
}

// ExportCmd is "annals audit export".
type ExportCmd struct {
	Flags
	TreeFlags
	From string `name:"from" placeholder:"TIME" help:"List the leaves of events from this time on, such as 2026-01-01; default all."`
	To   string `name:"to" placeholder:"TIME" help:"List the leaves of events up to this time; default now."`
	Out  string `name:"out" required:"" placeholder:"DIR" help:"Folder to write, which must be empty, or a file that ends in .zip."`
}

// Run writes the bundle.
func (c *ExportCmd) Run(ctx context.Context, to io.Writer) error {
	in := operatorapi.AuditExport{AuditRequest: c.request(), From: time.Unix(0, 0).UTC(), To: time.Now().UTC()}
	if c.From != "" {
		at, err := instant.ReadIn(c.From, time.Local)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		in.From = at.At
	}
	if c.To != "" {
		at, err := instant.ReadIn(c.To, time.Local)
		if err != nil {
			return fmt.Errorf("--to: %w", err)
		}
		in.To = at.End()
	}
	out, err := openBundle(c.Out)
	if err != nil {
		return err
	}
	err = c.server().ExportAudit(ctx, in, out)
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("what is in %s is not complete: %w", c.Out, err)
	}
	if c.JSON {
		return printJSON(to, map[string]any{"out": c.Out, "files": out.files})
	}
	_, err = fmt.Fprintf(to, "%s: %d files; check them with annals-verify\n", c.Out, out.files)
	return err
}

// bundle is where the files of a bundle are written.
type bundle struct {
	prove.Sink
	files int
	close func() error
}

// Create implements prove.Sink.
func (b *bundle) Create(name string) (io.Writer, error) {
	b.files++
	return b.Sink.Create(name)
}

// Close ends the bundle.
func (b *bundle) Close() error { return b.close() }

func openBundle(out string) (*bundle, error) {
	if !strings.HasSuffix(out, ".zip") {
		dir, err := auditfiles.NewFolder(out)
		if err != nil {
			return nil, err
		}
		return &bundle{Sink: dir, close: dir.Close}, nil
	}
	file, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	pack := zip.NewWriter(file)
	return &bundle{Sink: pack, close: func() error { return errors.Join(pack.Close(), file.Sync(), file.Close()) }}, nil
}

// RotateKeyCmd is "annals audit rotate-key".
type RotateKeyCmd struct {
	Flags
	TreeFlags
}

// Run adds a key.
func (c *RotateKeyCmd) Run(ctx context.Context, to io.Writer) error {
	made, err := operatorapi.RotateAuditKey.Call(ctx, c.server(), c.request())
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(to, made)
	}
	_, err = fmt.Fprintf(to, "%s\nThe next checkpoint is signed with this key and the one before it, later ones with "+
		"this one alone. Add it to the copies of the policy that are elsewhere.\n", made.Verifier)
	return err
}

// ShowCmd is "annals audit show".
type ShowCmd struct {
	Flags
	Request uuid.UUID `arg:"" help:"Id of the request, as X-Request-Id has it."`
	Part    int       `name:"part" help:"Part of a long record, from 0."`
	From    int       `name:"from" help:"First text to show, from 0."`
}

// Run shows what the request was shown.
func (c *ShowCmd) Run(ctx context.Context, to io.Writer) error {
	in := operatorapi.ShowReadRequest{Request: c.Request, Part: c.Part, From: c.From}
	found, err := operatorapi.ShowRead.Call(ctx, c.server(), in)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(to, found)
	}
	_, err = io.WriteString(to, wordsOf(found))
	return err
}

// wordsOf describes what a request was shown.
func wordsOf(s shown.Shown) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(&b, "%-9s %s\n", name+":", fmt.Sprintf(format, args...))
	}
	line("request", "%s, part %d, at %s", s.ID, s.Part, s.At.Format(time.RFC3339Nano))
	line("project", "%s of organization %s", s.Project, s.OrganizationID)
	line("who", "%s", strings.TrimSpace(s.Principal+" "+clean(s.Name)))
	switch {
	case s.Identity != "":
		line("as", "%s", clean(s.Identity))
	case s.HasIdentity():
		line("as", "%s, which was erased", s.IdentityID)
	}
	line("way", "%s", s.Way)
	checked := "it is in the tree of its batch"
	if !s.Rooted {
		checked = "DIFFERS: the tree of its batch has another root"
	}
	line("record", "event %d of %s: %s", s.Revision, s.Stream, checked)
	for _, t := range s.Shown {
		_, _ = fmt.Fprintf(&b, "\n%s", shownName(t))
		if t.Reading != nil {
			_, _ = fmt.Fprintf(&b, "; then %s", readingOf(*t.Reading))
		}
		b.WriteString("\n")
		for _, text := range append([]string{t.Text}, t.Parts...) {
			if text != "" {
				_, _ = fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(clean(text), "\n", "\n  "))
			}
		}
		if t.Cut {
			b.WriteString("  (only the beginning)\n")
		}
	}
	if next := s.Next(); next > 0 {
		_, _ = fmt.Fprintf(&b, "\n%d of %d texts; go on with --from %d\n", next, s.Texts, next)
	}
	return b.String()
}

// shownName names a text, with whether it is as it was.
func shownName(t shown.Text) string {
	name := t.DataPoint.String()
	if t.SourceID != "" {
		name = clean(t.SourceID)
	}
	if t.Revision > 0 {
		name += fmt.Sprintf(", revision %d", t.Revision)
	}
	if t.Kind == why.KindMemory {
		name += ", a memory"
	}
	is := map[why.Kept]string{
		why.KeptAsStored: "as it was stored", why.KeptDiffers: "DIFFERS from what was stored", why.KeptErased: "erased",
		why.KeptUnproved: "not proved: the record names no event", why.KeptUnknown: "no text that the log has",
	}[t.Kept]
	if t.Deleted != nil {
		is += " on " + t.Deleted.At.Format(time.RFC3339)
		if t.Deleted.Request != nil {
			is += " by request " + t.Deleted.Request.String()
		}
	}
	return name + ": " + is
}

// readingOf describes whether the identity could read a text.
func readingOf(r why.Reading) string {
	switch {
	case r.ErasedAt != nil || r.Reason == why.ReasonNotLooked:
		return fmt.Sprintf("nobody knows any more whether it could be read (%s)", r.Reason)
	case !r.MayRead:
		return fmt.Sprintf("it could NOT be read (%s)", r.Reason)
	}
	text := string(r.Reason)
	if r.Judgement != nil && r.Judgement.Audience != nil {
		text += ", audience " + clean(r.Judgement.Audience.Slug)
	}
	return fmt.Sprintf("it could be read (%s)", text)
}

// clean is a text without what changes a terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
