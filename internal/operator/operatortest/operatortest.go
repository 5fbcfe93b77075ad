// Package operatortest serves operators' routes to tests.
package operatortest

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/annals-project/annals/internal/operator"
)

// Serve serves the routes on the socket of a data folder until the test ends.
func Serve(t testing.TB, dataDir string, sends operator.Sends, more ...operator.Routes) {
	t.Helper()
	l, err := operator.Listen(t.Context(), dataDir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server := operator.Server(operator.Handler(sends, slog.New(slog.DiscardHandler), more...))
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}
