package pipeline

import (
	"context"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/memory"
)

// Extractor reads memories in one revision.
type Extractor interface {
	// Name is stored with what the extractor derived. It includes the extractor's version.
	Name() string
	// Extract fails with a *Failure if it is known how the attempt ends. Any other error is a
	// retryable failure inside the service.
	Extract(ctx context.Context, in comprehend.Input) ([]memory.Memory, error)
}

// pure is an Extractor that is cheap and deterministic, so that the start of an attempt needs no
// record.
type pure interface {
	Pure() bool
}

func isPure(e Extractor) bool {
	p, ok := e.(pure)
	return ok && p.Pure()
}

// Failure is a failed attempt with its public code. Retryable is false if another attempt would fail
// the same way.
type Failure struct {
	Code      string
	Message   string
	Retryable bool
	// Settings are the ends of the names of the settings that may be wrong, such as KEY. Only operators read them: they
	// are not stored.
	Settings []string
}

// Error implements error.
func (f *Failure) Error() string { return f.Code + ": " + f.Message }

// Builtin is the extractor that needs no model.
type Builtin struct{}

// Name implements Extractor.
func (Builtin) Name() string { return comprehend.Extractor }

// Pure reports that the extractor is cheap and deterministic.
func (Builtin) Pure() bool { return true }

// Extract implements Extractor.
func (Builtin) Extract(_ context.Context, in comprehend.Input) ([]memory.Memory, error) {
	return comprehend.Extract(in), nil
}
