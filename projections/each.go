package projections

import (
	"fmt"

	"github.com/annals-project/annals/eventstore"
)

// Each does something with every fact of a page, in order, up to the first that cannot be decoded or that do fails with; the error
// says which event that is.
func Each(page []eventstore.Fact, do func(eventstore.Fact) error) error {
	for _, f := range page {
		err := f.Err
		if err == nil {
			err = do(f)
		}
		if err != nil {
			return fmt.Errorf("event %d of %s: %w", f.Revision, f.Stream, err)
		}
	}
	return nil
}
