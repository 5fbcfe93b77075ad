package pipeline

import (
	"context"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/memory"
)

// Builtin is the extractor that needs no model.
type Builtin struct{}

// Name implements Extractor.
func (Builtin) Name() string { return comprehend.Extractor }

// Pure implements Pure.
func (Builtin) Pure() bool { return true }

// Extract implements Extractor.
func (Builtin) Extract(_ context.Context, in comprehend.Input) ([]memory.Memory, error) {
	return comprehend.Extract(in), nil
}
