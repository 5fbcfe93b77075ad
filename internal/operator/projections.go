package operator

import (
	"context"
	"errors"
	"time"
)

// Projections is what the handler needs of the service's projections.
type Projections interface {
	// Names are the projections, in the order in which all of them are rebuilt.
	Names() []string
	// Rebuild builds one anew beside the live one and switches, telling how far it is. It ends early with its context.
	Rebuild(ctx context.Context, projection string, report func(Rebuild)) error
	// SetAside lets projections pass over an event. ErrRefused is told apart.
	SetAside(ctx context.Context, s SetAside) (Aside, error)
	// Asides are the events that are set aside, by position.
	Asides(ctx context.Context) ([]Aside, error)
}

// Rebuild is how far a rebuild is.
type Rebuild struct {
	Projection string `json:"projection"`
	Position   uint64 `json:"position"`
	// Head is where the log ends.
	Head uint64 `json:"head"`
	// Events is how many events were passed in Seconds.
	Events  int64   `json:"events"`
	Seconds float64 `json:"seconds"`
	Done    bool    `json:"done"`
}

// Rate is events per second.
func (r Rebuild) Rate() float64 { return float64(r.Events) / max(r.Seconds, 0.001) }

// SetAside asks for an event to be set aside.
type SetAside struct {
	Position uint64 `json:"position"`
	// Projection is one, or "all"; "" means those that stand still at the event.
	Projection string `json:"projection"`
	Reason     string `json:"reason"`
	By         string `json:"by"`
	// Force allows an event that no projection stands still at.
	Force bool `json:"force"`
}

// Aside is an event that is set aside.
type Aside struct {
	Position uint64 `json:"position"`
	Stream   string `json:"stream"`
	Type     string `json:"type"`
	// Projections pass over it; none are all.
	Projections []string  `json:"projections"`
	Reason      string    `json:"reason"`
	By          string    `json:"by"`
	At          time.Time `json:"at"`
}

// ErrRefused is a request that cannot be followed, for the reason that the error says.
var ErrRefused = errors.New("refused")
