package auditcli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/projections/audit/prove"
)

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
