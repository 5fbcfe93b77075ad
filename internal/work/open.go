package work

import "context"

// CountOpen counts the pending fan-outs and what has yet to be erased: fanOuts of data points, the bulk writes and
// removals of identities, and removed people.
func CountOpen(
	ctx context.Context,
	fanOuts interface {
		Open(ctx context.Context) (Open, error)
	},
	identities interface {
		Open(ctx context.Context) (bulks, removals int, err error)
	},
	people interface {
		RemovedPeople(ctx context.Context) (int, error)
	},
) (Open, error) {
	open, err := fanOuts.Open(ctx)
	if err != nil {
		return open, err
	}
	bulks, removals, err := identities.Open(ctx)
	open.FanOuts += bulks
	if err != nil {
		return open, err
	}
	removed, err := people.RemovedPeople(ctx)
	open.Identities = removals + removed
	return open, err
}
