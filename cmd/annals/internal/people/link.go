package people

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/user"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
)

// Cmd is the group "annals person".
type Cmd struct {
	Link LinkCmd `cmd:"" help:"Print a link by which a person sets a new password; it works once, for an hour, and ends the second factor. Somebody new becomes the Owner of an organization without one."`
}

// LinkCmd is "annals person link".
type LinkCmd struct {
	operatorapi.WhoFlags
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	Org     string `name:"org" placeholder:"NAME|ID" help:"Organization without an Owner, if the person is a member of none; default the only one."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
	Email   string `arg:"" name:"email" help:"Address of the person."`
}

// Run prints the link.
func (c *LinkCmd) Run(ctx context.Context, to io.Writer) error {
	current, err := user.Current()
	if err != nil {
		return fmt.Errorf("find the user of this process: %w", err)
	}
	made, err := operatorapi.LinkPerson.Call(ctx, operatorapi.Dial(c.DataDir), operatorapi.PersonLinkRequest{
		Target: operatorapi.Target{Organization: c.Org, By: "operator " + current.Username}, Email: c.Email,
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(to).Encode(made)
	}
	_, err = fmt.Fprintf(to, "%s\nIt works once, until %s. Who opens it signs in as %s.\n", made.Link,
		made.ExpiresAt.Local().Format(time.TimeOnly), c.Email)
	return err
}
