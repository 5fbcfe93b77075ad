package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/internal/auth"
)

// gcPercent lets the heap grow to three times its live part between collections. Most allocations
// end with their request or page, so the live part is small. GOGC in the environment wins.
const gcPercent = 200

// memoryLimit is the heap size in bytes above which the collector runs more often, so that the
// garbage of a few big answers does not fill the machine. The live part may exceed it. GOMEMLIMIT
// in the environment wins.
const memoryLimit = 640 << 20

// ServeCmd is "annals serve".
type ServeCmd struct {
	Settings
}

// Run serves until the context ends.
func (c *ServeCmd) Run(ctx context.Context, env *Env) (err error) {
	if err := noCoreDumps(); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	cfg, err := c.config()
	if err != nil {
		return err
	}
	level, err := c.Level()
	if err != nil {
		return err
	}
	cfg.Logger = slog.New(slog.NewJSONHandler(env.Stderr, &slog.HandlerOptions{Level: level}))
	cfg.Clock = env.Now
	cfg.Ready = func(urls auth.URLs) {
		credentials := filepath.Join(c.DataDir, datafolder.CredentialsFile)
		_, _ = fmt.Fprintf(env.Stdout, "annals is ready: API on %s, credentials in %s\n", urls.API, credentials)
	}
	if env.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if env.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	s, err := server.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Run(ctx)
}

// noCoreDumps disables core files of this process and of the programs that it starts, because its
// memory holds keys and texts of customers.
func noCoreDumps() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("switch core dumps off: %w", err)
	}
	return nil
}
