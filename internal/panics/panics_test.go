package panics_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/panics"
)

func TestCall_Panic(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	err := panics.Call(t.Context(), logger, "item panicked", func() error { panic(io.ErrUnexpectedEOF) }, "item", 7)
	p, ok := errors.AsType[*panics.Error](err)
	if !ok || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(string(p.Stack), "panics_test") {
		t.Fatalf("error is %v, want a panic with its stack and cause", err)
	}
	if strings.Contains(err.Error(), "goroutine") {
		t.Errorf("the error shows the stack: %v", err)
	}
	for _, want := range []string{"item panicked", "item=7", "stack="} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log %q lacks %q", log.String(), want)
		}
	}
}

func TestCall_NoPanic(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	if err := panics.Call(t.Context(), logger, "never", func() error { return nil }); err != nil {
		t.Error(err)
	}
	if err := panics.Call(t.Context(), logger, "never", func() error { return io.EOF }); !errors.Is(err, io.EOF) {
		t.Errorf("error is %v, want EOF", err)
	}
}

func TestCall_AbortHandler(t *testing.T) {
	defer func() {
		if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // the very value must come through
			t.Errorf("recovered %v, want http.ErrAbortHandler", v)
		}
	}()
	_ = panics.Call(t.Context(), slog.New(slog.DiscardHandler), "never", func() error { panic(http.ErrAbortHandler) })
}

func TestGo_Panic(t *testing.T) {
	done := make(chan struct{})
	panics.Go(t.Context(), slog.New(slog.DiscardHandler), "goroutine panicked", func() {
		defer close(done)
		panic("x")
	})
	<-done
}
