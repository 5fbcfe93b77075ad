package main

import (
	"context"
	"time"

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

func (k liveKeys) KeyByHash(ctx context.Context, kind auth.Kind, hash [32]byte) (auth.Principal, bool, bool, error) {
	if err := k.waiter.Stopped(ctx, access.Name); err != nil {
		return auth.Principal{}, false, false, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "keys cannot be checked; /readyz says why")
	}
	return k.Keys.KeyByHash(ctx, kind, hash)
}

// keysOf are the keys of the process. Where the log is embedded this process alone changes them, and knows those that it has
// looked up; where others may change them too, each call looks its key up.
func keysOf(s *Settings, queries access.Queries, hooks *projections.Hooks) auth.Keys {
	if s.EventStore != Embedded {
		return queries
	}
	cache := auth.NewCache(queries)
	page := hooks.Page
	hooks.Page = func(name string, passed, applied int, took time.Duration) {
		if name == access.Name && applied > 0 {
			cache.Forget()
		}
		page(name, passed, applied, took)
	}
	return cache
}
