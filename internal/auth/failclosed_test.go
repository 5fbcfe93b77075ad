package auth

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
)

// everyKey knows every key.
type everyKey struct{}

func (everyKey) KeyByHash(context.Context, Kind, [32]byte) (Holder, bool, error) {
	return Holder{}, true, nil
}

func (everyKey) ProjectNamed(context.Context, uuid.UUID, string) (Named, bool, error) {
	return Named{}, true, nil
}

func (everyKey) Agent(context.Context, uuid.UUID) (AgentHolder, bool, error) {
	return AgentHolder{}, true, nil
}

// A key may have been revoked since the projection stopped.
func TestFailClosed(t *testing.T) {
	for _, stopped := range []error{nil, errors.New("stopped")} {
		keys := FailClosed(everyKey{}, func(context.Context) error { return stopped })
		_, known, err := keys.KeyByHash(t.Context(), ProjectKey, [32]byte{})
		_, named, namedErr := keys.ProjectNamed(t.Context(), uuid.New(), "default")
		_, agent, agentErr := keys.Agent(t.Context(), uuid.New())
		if stopped == nil && (!known || !named || !agent || err != nil || namedErr != nil || agentErr != nil) {
			t.Errorf("a key is refused: %v, %v", err, namedErr)
		}
		for _, err := range []error{err, namedErr, agentErr} {
			if f, is := errors.AsType[*fault.Error](err); stopped != nil && (!is || f.Code != fault.CodeServiceUnavailable) {
				t.Errorf("while the projection is stopped: %v", err)
			}
		}
		if stopped != nil && (known || named || agent) {
			t.Error("a key is known while the projection is stopped")
		}
	}
}

// slowKeys answers after a time.
type slowKeys struct {
	everyKey
	after time.Duration
}

func (s slowKeys) KeyByHash(ctx context.Context, _ Kind, _ [32]byte) (Holder, bool, error) {
	select {
	case <-time.After(s.after):
		return Holder{}, true, nil
	case <-ctx.Done():
		return Holder{}, false, ctx.Err()
	}
}

// A look-up that takes too long, as of a locked table, is given up, so that the call is answered.
func TestFailClosed_SlowLookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for after, found := range map[time.Duration]bool{
			lookUpTimeout - time.Millisecond: true, lookUpTimeout + time.Millisecond: false, time.Hour: false,
		} {
			keys := FailClosed(slowKeys{after: after}, func(context.Context) error { return nil })
			_, known, err := keys.KeyByHash(t.Context(), ProjectKey, [32]byte{})
			if known != found || (err == nil) != found {
				t.Errorf("after %s: %t, %v", after, known, err)
			}
		}
	})
}
