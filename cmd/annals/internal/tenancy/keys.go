package tenancy

import (
	"context"
	"fmt"
	"io"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/internal/tenants"
)

// KeyCmd is the group "annals key".
type KeyCmd struct {
	List   KeyListCmd   `cmd:"" help:"List the keys of a project, revoked ones too, without their values."`
	Create KeyCreateCmd `cmd:"" help:"Create a key of a project and print it."`
	Reveal KeyRevealCmd `cmd:"" help:"Print a key again. The event log then names who saw it."`
	Revoke KeyRevokeCmd `cmd:"" help:"Refuse a key from its next call on."`
}

// KeyListCmd is "annals key list".
type KeyListCmd struct {
	Flags
	Project string `arg:"" name:"project" help:"Slug of the project."`
}

// Run lists the keys.
func (c *KeyListCmd) Run(ctx context.Context, to io.Writer) error {
	return run(ctx, c.Flags, to, operatorapi.ListKeys, operatorapi.TenancyRequest{Project: c.Project},
		func(w io.Writer, list []tenants.Key) {
			row(w, "ID", "NAME", "KEY", "CREATED", "STATE")
			for _, k := range list {
				state := "live"
				if k.RevokedAt != nil {
					state = "revoked " + day(*k.RevokedAt)
				}
				row(w, k.ID, k.Name, k.Prefix+"…"+k.Suffix, day(k.CreatedAt), state)
			}
		})
}

// KeyCreateCmd is "annals key create".
type KeyCreateCmd struct {
	Flags
	Project string `arg:"" name:"project" help:"Slug of the project."`
	Name    string `name:"name" required:"" help:"Name of what uses the key, 1 to 64 characters."`
}

// Run creates the key.
func (c *KeyCreateCmd) Run(ctx context.Context, to io.Writer) error {
	return run(ctx, c.Flags, to, operatorapi.CreateKey, operatorapi.TenancyRequest{Project: c.Project, Name: c.Name},
		func(w io.Writer, k tenants.Key) {
			row(w, fmt.Sprintf("key %q (%s) of project %s is created: %s", k.Name, k.ID, k.Project, k.Key))
			warn(w, k)
		})
}

// keyFlags name one key.
type keyFlags struct {
	Flags
	Project string `arg:"" name:"project" help:"Slug of the project."`
	ID      string `arg:"" name:"key-id" help:"Id of the key, as annals key list shows it."`
}

func (f keyFlags) request() operatorapi.TenancyRequest {
	return operatorapi.TenancyRequest{Project: f.Project, Key: f.ID}
}

// KeyRevealCmd is "annals key reveal".
type KeyRevealCmd struct{ keyFlags }

// Run prints the key alone.
func (c *KeyRevealCmd) Run(ctx context.Context, to io.Writer) error {
	return run(ctx, c.Flags, to, operatorapi.RevealKey, c.request(),
		func(w io.Writer, k tenants.Key) { row(w, k.Key) })
}

// KeyRevokeCmd is "annals key revoke".
type KeyRevokeCmd struct{ keyFlags }

// Run revokes the key.
func (c *KeyRevokeCmd) Run(ctx context.Context, to io.Writer) error {
	return run(ctx, c.Flags, to, operatorapi.RevokeKey, c.request(), func(w io.Writer, k tenants.Key) {
		row(w, fmt.Sprintf("key %q (%s) of project %s is revoked", k.Name, k.ID, k.Project))
		warn(w, k)
	})
}

func warn(to io.Writer, k tenants.Key) {
	if k.Warning != "" {
		row(to, "warning: "+k.Warning)
	}
}
