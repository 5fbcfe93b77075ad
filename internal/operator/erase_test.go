package operator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/internal/operator"
	"github.com/annals-project/annals/internal/operator/operatortest"
)

// eraser is a service with something to erase.
type eraser struct {
	pending operator.Pending
	erased  operator.Erased
	refuse  error
}

func (e *eraser) PendingErasures(context.Context) (operator.Pending, error) {
	return e.pending, e.refuse
}
func (e *eraser) EraseNow(context.Context) (operator.Erased, error) { return e.erased, e.refuse }

func TestEraseReachesTheService(t *testing.T) {
	until := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	e := &eraser{
		pending: operator.Pending{FanOuts: 1, Deletions: 2, DataPoints: 3, Blobs: 4, Until: &until},
		erased: operator.Erased{
			Deletions: 5, Streams: 6, Blobs: 7, Tables: 8, Indexes: 9, Store: "scavenged", Left: operator.Pending{Blobs: 1, Until: &until},
		},
	}
	dir := t.TempDir()
	operatortest.Serve(t, dir, &sends{}, operator.EraseRoutes(e))
	c := operator.Dial(dir)
	pending, err := c.Pending(t.Context())
	if diff := cmp.Diff(e.pending, pending); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	erased, err := c.EraseNow(t.Context())
	if diff := cmp.Diff(e.erased, erased); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	e.refuse = errors.New("no space left on device")
	if _, err := c.EraseNow(t.Context()); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v", err)
	}
}
