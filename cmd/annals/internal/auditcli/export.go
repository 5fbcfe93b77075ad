package auditcli

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/internal/auditfiles"
	"github.com/annals-project/annals/projections/audit/prove"
)

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
