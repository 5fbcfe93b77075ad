package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

// Stop is why a projector stopped, with the event that it could not apply, if any.
type Stop struct {
	Projection string
	// Position, Stream, Type and EventID are of the event, zero for another reason.
	Position eventstore.Position
	Stream   string
	Type     string
	EventID  uuid.UUID
	// Err is the kind of the error; it holds no text of the event.
	Err error
}

func (s *Stop) Error() string {
	if s.Stream == "" {
		return "projection " + s.Projection + " stopped: " + s.Err.Error()
	}
	return "projection " + s.Projection + " stopped at " + s.Type + " of " + s.Stream + ": " + s.Err.Error()
}

func (s *Stop) Unwrap() error { return s.Err }

// storedStop is a Stop or a Repeat in the checkpoint, for other processes.
type storedStop struct {
	Position eventstore.Position `json:"position"`
	Stream   string              `json:"stream"`
	Type     string              `json:"type"`
	EventID  uuid.UUID           `json:"eventId,omitzero"`
	Error    string              `json:"error"`
	// Of a Repeat, whose Next is Position.
	After   eventstore.Position `json:"after,omitempty"`
	Since   time.Time           `json:"since,omitzero"`
	Tries   int                 `json:"tries,omitempty"`
	OfEvent bool                `json:"ofEvent,omitempty"`
}

// encodeReason encodes why a projection does not move, nil for no reason.
func encodeReason(stop *Stop, repeat *Repeat) ([]byte, error) {
	var stored storedStop
	switch {
	case stop != nil:
		stored = storedStop{
			Position: stop.Position, Stream: stop.Stream, Type: stop.Type, EventID: stop.EventID, Error: stop.Err.Error(),
		}
	case repeat != nil:
		stored = storedStop{
			Position: repeat.Next, Error: brief(repeat.Err), After: repeat.After, Since: repeat.Since, Tries: repeat.Tries,
			OfEvent: repeat.OfEvent,
		}
	default:
		return nil, nil
	}
	// jsonb cannot hold U+0000.
	stored.Error = strings.ReplaceAll(stored.Error, "\x00", "\uFFFD")
	encoded, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("encode reason of a stop: %w", err)
	}
	return encoded, nil
}

func decodeReason(projection string, encoded []byte) (*Stop, *Repeat, error) {
	var stored storedStop
	if err := json.Unmarshal(encoded, &stored); err != nil {
		return nil, nil, fmt.Errorf("decode why %s stopped: %w", projection, err)
	}
	cause := errors.New(stored.Error)
	if stored.Tries > 0 {
		return nil, &Repeat{
			Projection: projection, After: stored.After, Next: stored.Position,
			Since: stored.Since, Tries: stored.Tries, Err: cause, OfEvent: stored.OfEvent,
		}, nil
	}
	return &Stop{
		Projection: projection, Position: stored.Position, Stream: stored.Stream, Type: stored.Type,
		EventID: stored.EventID, Err: cause,
	}, nil, nil
}
