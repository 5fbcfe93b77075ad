package server

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/annals-project/annals/domain/fault"
)

// A start survives an event store that is away for a moment, ends if it stays away, and ends at once
// for any other reason.
func TestBootstrap_RetriesWhileUnavailable(t *testing.T) {
	away := fmt.Errorf("read the registry: %w", fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "away"))
	wrong := errors.New("wrong key")
	for name, c := range map[string]struct {
		answers []error // the last one is repeated
		want    error
		opened  int
	}{
		"at once":          {[]error{nil}, nil, 1},
		"away for a time":  {[]error{away, away, nil}, nil, 3},
		"stays away":       {[]error{away}, away, openTries},
		"another reason":   {[]error{wrong}, wrong, 1},
		"away, then wrong": {[]error{away, wrong}, wrong, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opened := 0
				err := retryUnavailable(t.Context(), slog.New(slog.DiscardHandler), func() error {
					opened++
					return c.answers[min(opened, len(c.answers))-1]
				})
				if !errors.Is(err, c.want) || opened != c.opened {
					t.Errorf("opened %d times: %v, want %d times: %v", opened, err, c.opened, c.want)
				}
			})
		})
	}
}
