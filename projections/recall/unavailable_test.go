package recall_test

import (
	"context"
	"errors"
	"testing"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
	"github.com/annals-project/annals/projections/recallindex"
)

type failing struct{ recallindex.Index }

func (failing) Search(context.Context, recallindex.Query) (recallindex.Result, error) {
	return recallindex.Result{}, recallindex.ErrDamaged
}

func (failing) Generation() string { return "failing" }

type stopped struct{}

func (stopped) Stopped(_ context.Context, name string) error {
	if name == "memories" {
		return errors.New("stopped")
	}
	return nil
}

func TestRecall_Unavailable(t *testing.T) {
	h := recalltest.New(t, failing{})
	config := h.Config()
	config.Projections = stopped{}
	services := map[string]*recall.Service{"index": h.Service(), "projection": recall.New(config)}
	for name, service := range services {
		_, err := service.Recall(t.Context(), h.Ask("helix"))
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.CodeServiceUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Service().Recall(ctx, h.Ask("helix")); err == nil {
		t.Error("a recall without a caller succeeds")
	}
}
