package eventstore

import "fmt"

// OlderCopyError reports that the log went back: the event store was put back from an older copy. Until an
// operator decides how to go on, nothing may be written to it or be answered from what was applied.
type OlderCopyError struct {
	// Head is the newest position that the store has.
	Head Position
	// Applied is the position of an event that was applied or acknowledged, and that the store does not have.
	Applied Position
}

func (e *OlderCopyError) Error() string {
	if e.Head < e.Applied {
		return fmt.Sprintf("the log is an older copy: it ends at position %d, and position %d was applied",
			e.Head, e.Applied)
	}
	return fmt.Sprintf("the log is an older copy: it went on to position %d, without what was applied at position %d",
		e.Head, e.Applied)
}

// Unwrap makes it a store that is not ready.
func (e *OlderCopyError) Unwrap() error { return ErrUnavailable }
