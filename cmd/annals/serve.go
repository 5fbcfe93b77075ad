package main

import (
	"context"
	"errors"

	"github.com/annals-project/annals/cmd/annals/internal/announce"
	"github.com/annals-project/annals/cmd/annals/internal/environment"
	"github.com/annals-project/annals/cmd/annals/internal/logging"
	"github.com/annals-project/annals/cmd/annals/internal/memory"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/cmd/annals/internal/signals"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/build"
)

// ServeCmd is "annals serve".
type ServeCmd struct {
	Settings
}

// Validate names every setting that cannot work.
func (c *ServeCmd) Validate() error { return c.Check() }

// Run serves until the context ends.
func (c *ServeCmd) Run(ctx context.Context, env *Env) (err error) {
	signals.OutliveOutput()
	if err := memory.NoCoreDumps(); err != nil {
		return err
	}
	cfg, err := c.config()
	if err != nil {
		return err
	}
	if cfg.Logger, err = c.logger(env); err != nil {
		return err
	}
	is := build.Get()
	cfg.Logger.InfoContext(ctx, "annals starts", "version", is.Version, "commit", is.Commit, "go", is.Go,
		"data", cfg.Data.Dir, "roles", cfg.Roles.String(), "heap_mib", memory.Limit(env.Getenv)>>20)
	for _, unknown := range environment.Find(env.Environ, env.Known) {
		args := []any{"variable", unknown.Name}
		if unknown.Nearest != "" {
			args = append(args, "nearest", unknown.Nearest)
		}
		cfg.Logger.WarnContext(ctx, "no setting reads this variable of the environment", args...)
	}
	cfg.Clock = env.Now
	service := announce.Service{Data: cfg.Data, New: cfg.Data.IsNew(), OpsAddr: c.OpsAddr}
	isPerson := logging.Format(c.LogFormat).For(env.Stderr) == logging.Text
	if isPerson {
		cfg.SignIn.ShowLink = func(link string) { service.OwnerLink = link }
	}
	cfg.Ready = func(urls auth.URLs) { service.Ready(env.Stdout, urls, isPerson) }
	s, err := server.New(ctx, cfg)
	if err != nil {
		return err
	}
	stopped := announce.Stop(ctx, cfg.Logger)
	defer func() {
		err = errors.Join(err, s.Close())
		stopped()
	}()
	return s.Run(ctx)
}
