package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/doctor"
	"github.com/annals-project/annals/cmd/annals/internal/environment"
	"github.com/annals-project/annals/cmd/annals/internal/server"
)

// DoctorCmd is "annals doctor". It takes the settings of serve, and runs with those that cannot work.
type DoctorCmd struct {
	Settings
	JSON bool `name:"json" help:"Print the findings as one JSON value."`
}

// Run prints a line for each finding. It fails if something is broken.
func (c *DoctorCmd) Run(ctx context.Context, env *Env) error {
	in := doctor.Config{
		Service: server.Config{Data: datafolder.Folder{Dir: c.DataDir}}, Getenv: env.Getenv, Now: env.Now,
		Unknown: environment.Find(env.Environ, env.Known),
	}
	if in.Now == nil {
		in.Now = time.Now
	}
	if err := errors.Join(env.Unread, c.Check()); err != nil {
		in.Wrong = strings.Split(err.Error(), "\n")
	} else if in.Service, err = c.config(); err != nil {
		return err
	}
	return printSummary(env.Stdout, doctor.Examine(ctx, in), c.JSON)
}
