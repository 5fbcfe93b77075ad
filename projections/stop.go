package projections

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/annals-project/annals/eventstore"
)

// Stop says why a projector stopped, and at which event where one is to blame.
type Stop struct {
	Projection string
	// Position, Stream and Type are the event's; zero where the projector stopped for another reason.
	Position eventstore.Position
	Stream   string
	Type     string
	Err      error
}

func (s *Stop) Error() string {
	if s.Stream == "" {
		return "projection " + s.Projection + " stopped: " + s.Err.Error()
	}
	return "projection " + s.Projection + " stopped at " + s.Type + " of " + s.Stream + ": " + s.Err.Error()
}

func (s *Stop) Unwrap() error { return s.Err }

// storedStop is a Stop as the checkpoint holds it, for other processes to read.
type storedStop struct {
	Position eventstore.Position `json:"position"`
	Stream   string              `json:"stream"`
	Type     string              `json:"type"`
	Error    string              `json:"error"`
}

func (s *Stop) encode() ([]byte, error) {
	// jsonb holds no U+0000.
	text := strings.ReplaceAll(s.Err.Error(), "\x00", "\uFFFD")
	encoded, err := json.Marshal(storedStop{Position: s.Position, Stream: s.Stream, Type: s.Type, Error: text})
	if err != nil {
		return nil, fmt.Errorf("reason of the stop: %w", err)
	}
	return encoded, nil
}

func decodeStop(projection string, encoded []byte) (*Stop, error) {
	var stored storedStop
	if err := json.Unmarshal(encoded, &stored); err != nil {
		return nil, fmt.Errorf("why %s stopped: %w", projection, err)
	}
	return &Stop{Projection: projection, Position: stored.Position, Stream: stored.Stream, Type: stored.Type, Err: errors.New(stored.Error)}, nil
}
