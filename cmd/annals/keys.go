package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/internal/secret"
)

// SealKeyCmd is the group "annals seal-key".
type SealKeyCmd struct {
	List       SealKeyListCmd       `cmd:"" help:"Print the names of the seal keys that this process would have, the one that seals first. A name reveals nothing of its key."`
	AcceptLoss SealKeyAcceptLossCmd `cmd:"" name:"accept-loss" help:"Show what nobody can open without a seal key that is missing, and with --yes go on without that key. No server may run on the data folder."`
}

// sealKeyFlags are the flags that name seal keys.
type sealKeyFlags struct {
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder."`
	SealKey string `name:"seal-key" setting:"ANNALS_SEAL_KEY" help:"Seal keys, if they are configured."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
}

func (k sealKeyFlags) folder() datafolder.Folder {
	return datafolder.Folder{Dir: k.DataDir, SealKey: k.SealKey}
}

// SealKeyListCmd is "annals seal-key list".
type SealKeyListCmd struct {
	sealKeyFlags `embed:""`
}

// Run prints the names.
func (c *SealKeyListCmd) Run(to io.Writer) error {
	known, err := c.folder().KnownSealKeys()
	if err != nil {
		return err
	}
	names := secret.Names(known)
	if c.JSON {
		return json.NewEncoder(to).Encode(map[string][]string{"names": names})
	}
	if len(names) == 0 {
		names = []string{"no seal key is known"}
	}
	_, err = fmt.Fprintln(to, strings.Join(names, "\n"))
	return err
}

// SealKeyAcceptLossCmd is "annals seal-key accept-loss".
type SealKeyAcceptLossCmd struct {
	sealKeyFlags `embed:""`
	Postgres     string `name:"postgres" setting:"ANNALS_POSTGRES" default:"embedded" help:"Database: embedded, or postgres://user@host/database."`
	Prefix       string `name:"postgres-schema-prefix" setting:"ANNALS_POSTGRES_SCHEMA_PREFIX" help:"Start of the names of all schemas in the database, if it is configured."`
	Yes          bool   `name:"yes" help:"Accept the loss."`
}

var errLossNotAccepted = errors.New("nothing was changed: look for the key in the processes that share the database " +
	"and in every backup, and add --yes if it is lost")

// Run shows what is lost, and accepts it.
func (c *SealKeyAcceptLossCmd) Run(ctx context.Context, to io.Writer) error {
	folder := c.folder()
	folder.SchemaPrefix = c.Prefix
	found, err := folder.LoseSealKey(ctx, c.Postgres, c.Yes)
	if err != nil {
		return err
	}
	if err := c.print(to, found); err != nil {
		return err
	}
	if len(found.Missing) > 0 && !found.Accepted {
		return errLossNotAccepted
	}
	return nil
}

func (c *SealKeyAcceptLossCmd) print(to io.Writer, found datafolder.SealKeyLoss) error {
	if c.JSON {
		return json.NewEncoder(to).Encode(found)
	}
	var b strings.Builder
	if len(found.Missing) == 0 {
		b.WriteString("no seal key is missing\n")
	} else {
		fmt.Fprintf(&b, "missing: the seal key %s\n", strings.Join(found.Missing, ", "))
	}
	for _, l := range found.Lost {
		fmt.Fprintf(&b, "%d %s: %s\n", l.Count, l.Values, l.Follows)
	}
	if found.Accepted {
		fmt.Fprintf(&b, "the service starts with the seal key %s\n", strings.Join(found.Known, ", "))
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// SigningKeysCmd is the group "annals signing-keys".
type SigningKeysCmd struct {
	Rotate SigningKeysRotateCmd `cmd:"" help:"Make a new key, which signs after 5 s. Tokens of the key before it stay valid; those of older keys end. So two rotations end all tokens that were signed before."`
}

// SigningKeysRotateCmd is "annals signing-keys rotate".
type SigningKeysRotateCmd struct {
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
}

// Run makes the key.
func (c *SigningKeysRotateCmd) Run(ctx context.Context, to io.Writer) error {
	left, err := operatorapi.RotateSigningKeys.Call(ctx, operatorapi.Dial(c.DataDir), operatorapi.None{})
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(to).Encode(left)
	}
	for i, key := range left {
		does := "verifies alone"
		if i == 0 {
			does = "signs after 5 s"
		}
		made := key.CreatedAt.Local().Format(time.DateTime)
		if _, err := fmt.Fprintf(to, "%s, made %s, %s\n", key.ID, made, does); err != nil {
			return err
		}
	}
	return nil
}

// PersonCmd is the group "annals person".
type PersonCmd struct {
	Link PersonLinkCmd `cmd:"" help:"Print a link by which a person sets a new password; it works once, for an hour, and ends the second factor. Somebody new becomes the Owner of an organization without one."`
}

// PersonLinkCmd is "annals person link".
type PersonLinkCmd struct {
	operatorapi.WhoFlags
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	Org     string `name:"org" placeholder:"NAME|ID" help:"Organization without an Owner, if the person is a member of none; default the only one."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
	Email   string `arg:"" name:"email" help:"Address of the person."`
}

// Run prints the link.
func (c *PersonLinkCmd) Run(ctx context.Context, to io.Writer) error {
	target, err := (OrgFlag{c.Org}).target()
	if err != nil {
		return err
	}
	made, err := operatorapi.LinkPerson.Call(ctx, operatorapi.Dial(c.DataDir),
		operatorapi.PersonLinkRequest{Target: target, Email: c.Email})
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
