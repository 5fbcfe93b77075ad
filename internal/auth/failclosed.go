package auth

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
)

// lookUpTimeout bounds a look-up: a table may be locked by somebody else.
const lookUpTimeout = 10 * time.Second

// failClosed refuses to look keys up while their projection is stopped, and gives a look-up up that takes too long.
type failClosed struct {
	keys    Keys
	stopped func(context.Context) error
}

// FailClosed returns keys that are refused with service-unavailable while stopped returns an error: the projection of
// keys has stopped, and a key could have been revoked since.
func FailClosed(keys Keys, stopped func(context.Context) error) Keys {
	return failClosed{keys, stopped}
}

// KeyByHash implements Keys.
func (k failClosed) KeyByHash(ctx context.Context, kind Kind, hash [32]byte) (Holder, bool, error) {
	if err := k.check(ctx); err != nil {
		return Holder{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	return k.keys.KeyByHash(ctx, kind, hash)
}

// ProjectNamed implements Keys.
func (k failClosed) ProjectNamed(ctx context.Context, organizationID uuid.UUID, slug string) (Named, bool, error) {
	if err := k.check(ctx); err != nil {
		return Named{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	return k.keys.ProjectNamed(ctx, organizationID, slug)
}

// Agent implements Keys.
func (k failClosed) Agent(ctx context.Context, id uuid.UUID) (AgentHolder, bool, error) {
	if err := k.check(ctx); err != nil {
		return AgentHolder{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	return k.keys.Agent(ctx, id)
}

func (k failClosed) check(ctx context.Context) error {
	if k.stopped(ctx) != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "keys cannot be checked; /readyz shows why")
	}
	return nil
}
