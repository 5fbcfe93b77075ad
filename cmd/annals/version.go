package main

import (
	"fmt"

	"github.com/annals-project/annals/internal/build"
)

// VersionCmd is "annals version".
type VersionCmd struct {
	JSON bool `name:"json" help:"Print it as one JSON value."`
}

// Run prints the version.
func (c *VersionCmd) Run(env *Env) error {
	if c.JSON {
		return printJSON(env.Stdout, build.Get())
	}
	_, err := fmt.Fprintln(env.Stdout, "annals", build.Get())
	return err
}
