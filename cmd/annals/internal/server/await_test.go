package server

import (
	"context"
	"errors"
	"log/slog"
	"testing"
)

var (
	errSilent  = errors.New("no answer")
	errRefused = errors.New("wrong password")
)

func TestAwaitServer(t *testing.T) {
	isRefusal := func(err error) bool { return errors.Is(err, errRefused) }
	for name, test := range map[string]struct {
		answers []error
		want    error
	}{
		"answers at once":  {[]error{nil}, nil},
		"starts meanwhile": {[]error{errSilent, nil}, nil},
		"refuses":          {[]error{errRefused}, errRefused},
		"starts to refuse": {[]error{errSilent, errRefused}, errRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			err := awaitServer(t.Context(), slog.New(slog.DiscardHandler), "it", func() error {
				tries++
				return test.answers[tries-1]
			}, isRefusal)
			if !errors.Is(err, test.want) || tries != len(test.answers) {
				t.Errorf("%d tries, %v; want %d, %v", tries, err, len(test.answers), test.want)
			}
		})
	}
}

func TestAwaitServer_ContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := awaitServer(ctx, slog.New(slog.DiscardHandler), "it", func() error { cancel(); return errSilent },
		func(error) bool { return false })
	if !errors.Is(err, errSilent) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want both why it was tried again and why it ended", err)
	}
}
