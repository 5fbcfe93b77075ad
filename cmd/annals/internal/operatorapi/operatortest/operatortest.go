// Package operatortest serves routes of the operator API to tests.
package operatortest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/internal/peersocket"
)

// Serve serves routes on the socket of a data folder until the test ends.
func Serve(t testing.TB, dataDir string, routes ...operatorapi.Route) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	l, err := peersocket.Listen(t.Context(), operatorapi.Socket(dataDir), logger)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- peersocket.Serve(ctx, l, operatorapi.Handler(logger, routes...)) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
