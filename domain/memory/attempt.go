package memory

import "github.com/annals-project/annals/domain/event"

// NextAttempt decides the number of the next attempt to derive a revision in a round of its send,
// after the last attempt that the stream of the data point's memories records, nil for none. ended
// reports that the revision needs no further attempt: it is derived, it failed for good, or a later
// revision was begun. A retry of the send, which is a round above 0, derives an earlier revision
// too.
func NextAttempt(last event.Event, revision, round int) (number int, ended bool) {
	switch e := last.(type) {
	case *DerivationStarted:
		if e.Revision == revision && e.Round == round {
			return e.Attempt + 1, false
		}
		return 1, e.Revision > revision && round == 0
	case *Failed:
		if e.Revision == revision && e.Round == round {
			return e.Attempt + 1, e.Final
		}
		return 1, e.Revision > revision && round == 0
	case *Derived:
		return 1, e.Revision == revision || (e.Revision > revision && round == 0)
	default:
		return 1, false
	}
}
