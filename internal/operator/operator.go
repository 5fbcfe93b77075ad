// Package operator is what the person who runs the server asks it through a socket in the data folder: whoever may open the socket may ask.
package operator

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/google/uuid"
)

// SocketName is the file name of the socket in the data folder; its mode is 0600.
const SocketName = "annals.sock"

// MaxSocketPath is the longest path that a Unix socket takes on every supported system.
const MaxSocketPath = 103

// Socket is the path of the socket for a data folder.
func Socket(dataDir string) string { return filepath.Join(dataDir, SocketName) }

// MaxPage is the most sends that one list holds.
const MaxPage = 500

// Failed is a send that stopped.
type Failed struct {
	IngestionID uuid.UUID `json:"ingestionId"`
	Project     string    `json:"project"`
	// Code and Message are the send's failure as its status shows them.
	Code       string    `json:"code"`
	Message    string    `json:"message"`
	Items      int       `json:"items"`
	AcceptedAt time.Time `json:"acceptedAt"`
	FailedAt   time.Time `json:"failedAt"`
	// Retryable is false where a retry would stop the same way.
	Retryable bool `json:"retryable"`
}

// FailedPage is one page of stopped sends, oldest first.
type FailedPage struct {
	Failed []Failed `json:"failed"`
	// After asks for the next page; "" on the last one.
	After string `json:"after,omitempty"`
}

// Sends is what the handler needs of the service.
type Sends interface {
	// FailedSends lists at most limit stopped sends whose failure still counts, oldest first, behind the send named by
	// after; uuid.Nil begins.
	FailedSends(ctx context.Context, limit int, after uuid.UUID) ([]Failed, error)
	// Retry puts a stopped send back into the queue. ErrNotFound and ErrNotStopped are told apart.
	Retry(ctx context.Context, ingestionID uuid.UUID) error
}

// The refusals that a caller tells apart, with errors.Is.
var (
	ErrNotFound   = errors.New("there is no such send")
	ErrNotStopped = errors.New("the send has not stopped")
	ErrDisabled   = errors.New("the pipeline is switched off (ANNALS_PIPELINE=off)")
)
