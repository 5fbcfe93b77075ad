package work

import (
	"time"

	"github.com/google/uuid"
)

// Person is a person who is removed, or a member of no organization, or whose address was claimed and
// nothing followed; or the id of an erased person who is still a member.
type Person struct {
	ID uuid.UUID
	// Address is the stream of the address, "" if nothing of the person but the membership is known.
	Address   string
	ClaimedAt time.Time
	// Organizations are those that the person is a member of.
	Organizations []uuid.UUID
}
