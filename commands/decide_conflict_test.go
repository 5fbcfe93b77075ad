package commands

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
)

// A stream that conflicts each time, as one whose events another hand removed, is tried with pauses until the command
// ends.
func TestUntilNoConflict_LastingConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), decideTimeout)
		defer cancel()
		tries := 0
		err := untilNoConflict(ctx, nil, func(reread bool) error {
			if reread != (tries > 0) {
				t.Errorf("try %d: reread is %t", tries, reread)
			}
			if tries++; tries == 1000 {
				cancel()
			}
			return eventstore.ErrConflict
		})
		if f, is := errors.AsType[*fault.Error](err); tries >= 1000 || !is || f.Kind != fault.Unavailable {
			t.Errorf("%d tries, then %v", tries, err)
		}
	})
}
