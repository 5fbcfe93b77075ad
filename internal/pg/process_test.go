package pg

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"syscall"
	"testing"

	"github.com/annals-project/annals/internal/panics"
)

// panickingOutput panics at the output of a process.
type panickingOutput struct{ slog.Handler }

func (panickingOutput) Enabled(context.Context, slog.Level) bool { return true }

func (panickingOutput) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "postgres output" {
		panic("log handler")
	}
	return nil
}

// The process writes more than a pipe holds, and ends all the same.
func TestProcess_ReadingOutputPanics(t *testing.T) {
	cmd := exec.Command("sh", "-c", "yes | head -c 1000000")
	user := osUser{apply: func(*syscall.SysProcAttr) {}}
	err := run(t.Context(), cmd, user, slog.New(panickingOutput{slog.DiscardHandler}))
	if p, ok := errors.AsType[*panics.Error](err); !ok || p.Value != "log handler" {
		t.Errorf("error %v, want the panic", err)
	}
}
