// Package sealkey is the group "annals seal-key".
package sealkey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/secret"
)

// Cmd is the group "annals seal-key".
type Cmd struct {
	List       ListCmd       `cmd:"" help:"Print the names of the seal keys that this process would have, the one that seals first. A name reveals nothing of its key."`
	AcceptLoss AcceptLossCmd `cmd:"" name:"accept-loss" help:"Show what nobody can open without a seal key that is missing, and with --yes go on without that key. No server may run on the data folder."`
}

// keys are the flags that name seal keys.
type keys struct {
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder."`
	SealKey string `name:"seal-key" setting:"ANNALS_SEAL_KEY" help:"Seal keys, if they are configured."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
}

func (k keys) folder() datafolder.Folder {
	return datafolder.Folder{Dir: k.DataDir, SealKey: k.SealKey}
}

// ListCmd is "annals seal-key list".
type ListCmd struct {
	keys `embed:""`
}

// Run prints the names.
func (c *ListCmd) Run(to io.Writer) error {
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

// AcceptLossCmd is "annals seal-key accept-loss".
type AcceptLossCmd struct {
	keys     `embed:""`
	Postgres string `name:"postgres" setting:"ANNALS_POSTGRES" default:"embedded" help:"Database: embedded, or postgres://user@host/database."`
	Prefix   string `name:"postgres-schema-prefix" setting:"ANNALS_POSTGRES_SCHEMA_PREFIX" help:"Start of the names of all schemas in the database, if it is configured."`
	Yes      bool   `name:"yes" help:"Accept the loss."`
}

var errNotAccepted = errors.New("nothing was changed: look for the key in the processes that share the database " +
	"and in every backup, and add --yes if it is lost")

// Run shows what is lost, and accepts it.
func (c *AcceptLossCmd) Run(ctx context.Context, to io.Writer) error {
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
		return errNotAccepted
	}
	return nil
}

func (c *AcceptLossCmd) print(to io.Writer, found datafolder.SealKeyLoss) error {
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
