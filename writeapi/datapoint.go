package writeapi

import (
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
)

// dataPointOf checks the fields of a data point against their limits, except the size of its
// content.
func dataPointOf(f fields.Object) (commands.DataPoint, error) {
	return commands.DataPoint(fields.DataPointOf(f)), nil
}

// checkSize refuses content over the limit; bytes is its size in UTF-8.
func checkSize(what string, size int) error {
	if size <= limit.ContentBytes {
		return nil
	}
	return fault.New(fault.TooLarge, fault.CodeContentTooLarge,
		"%s has %d bytes in UTF-8: want at most %d", what, size, limit.ContentBytes).
		With("limitBytes", limit.ContentBytes).With("bytes", size)
}
