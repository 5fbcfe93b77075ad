package main

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
)

// liveKeys looks keys up, and refuses to answer while the projection that it rests on is stopped: a key could have been revoked.
type liveKeys struct {
	auth.Keys
	waiter *projections.Waiter
}

func (k liveKeys) KeyByHash(ctx context.Context, kind auth.Kind, hash [32]byte) (auth.Holder, bool, error) {
	if err := k.stopped(ctx); err != nil {
		return auth.Holder{}, false, err
	}
	return k.Keys.KeyByHash(ctx, kind, hash)
}

func (k liveKeys) ProjectNamed(ctx context.Context, organizationID uuid.UUID, slug string) (auth.Named, bool, error) {
	if err := k.stopped(ctx); err != nil {
		return auth.Named{}, false, err
	}
	return k.Keys.ProjectNamed(ctx, organizationID, slug)
}

func (k liveKeys) stopped(ctx context.Context) error {
	if err := k.waiter.Stopped(ctx, access.Name); err != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "keys cannot be checked; /readyz says why")
	}
	return nil
}

// keysOf are the keys of the process. Where the log is embedded this process alone changes them, and knows those that it has
// looked up; where others may change them too, each call looks its key up.
func keysOf(s *Settings, queries access.Queries, hooks *projections.Hooks) auth.Keys {
	bounded := auth.NewStrangers(queries)
	if s.EventStore != Embedded {
		return bounded
	}
	cache := auth.NewCache(bounded)
	page := hooks.Page
	hooks.Page = func(name string, passed, applied int, took time.Duration) {
		if name == access.Name && applied > 0 {
			cache.Forget()
		}
		page(name, passed, applied, took)
	}
	return cache
}
