package why

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// headOf is a log and its waiter, which notes what is waited for.
type headOf struct {
	err    error
	waited []string
}

func (h *headOf) Head(context.Context) (eventstore.Position, error) { return 7, h.err }

func (h *headOf) Wait(_ context.Context, position eventstore.Position, names ...string) error {
	if position == 7 {
		h.waited = append(h.waited, names...)
	}
	return nil
}

// What is not complete is read once more, after the projections have applied the log.
func TestAgain(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		complete     []bool
		read, head   error
		reads, waits int
		err          error
	}{
		"complete at once":    {complete: []bool{true}, reads: 1},
		"complete later":      {complete: []bool{false, true}, reads: 2, waits: 1},
		"never complete":      {complete: []bool{false, false}, reads: 2, waits: 1},
		"a read fails":        {complete: []bool{false}, read: failed, reads: 1, err: failed},
		"the head is unknown": {complete: []bool{false}, head: failed, reads: 1, err: failed},
	} {
		h, reads := &headOf{err: c.head}, 0
		complete, err := again(t.Context(), projections.Head{Log: h, Waiter: h}, func() (bool, error) {
			reads++
			return c.complete[reads-1], c.read
		}, "access")
		if reads != c.reads || len(h.waited) != c.waits || complete != c.complete[reads-1] || !errors.Is(err, c.err) {
			t.Errorf("%s: %d reads, waited for %v: %t, %v", name, reads, h.waited, complete, err)
		}
		if c.waits == 1 && !slices.Equal(h.waited, []string{"access"}) {
			t.Errorf("%s: waited for %v", name, h.waited)
		}
	}
}
