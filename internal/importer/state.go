package importer

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/annals-project/annals/internal/fsx"
)

// State is the progress of an import. It is written next to the input after each batch.
type State struct {
	Version int `json:"version"`
	// ImportID makes the idempotency keys of this import unique.
	ImportID string `json:"importId"`
	// Server is the address that received the batches, and ProjectID their project, 0 before the first.
	Server    string `json:"server"`
	ProjectID int64  `json:"projectId"`
	// Offset is the end of the part of the input that was acknowledged without a gap, Sum its SHA-256.
	Offset int64  `json:"offset"`
	Sum    string `json:"sha256"`
	// Points counts the data points before Offset, Unchanged those that the server already had.
	Points    int `json:"points"`
	Unchanged int `json:"unchanged"`
	Batches   int `json:"batches"`
	// Skipped counts the memories of an export that were not sent.
	Skipped int `json:"skipped,omitempty"`
	// LastIngestion is the id of a send of this import, whose status shows the progress of the project.
	LastIngestion string `json:"lastIngestion"`
}

const stateVersion = 1

// NewState begins an import to a server.
func NewState(server string) State {
	return State{Version: stateVersion, ImportID: rand.Text(), Server: server, Sum: emptySum()}
}

func emptySum() string { return newLines(bytes.NewReader(nil)).sum() }

// LoadState reads a progress file. ok is false without one.
func LoadState(path string) (state State, ok bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, false, nil
	}
	if err != nil {
		return State{}, false, fmt.Errorf("read progress file: %w", err)
	}
	if err := json.Unmarshal(text, &state); err != nil || state.Version != stateVersion || state.ImportID == "" {
		return State{}, false, fmt.Errorf("%s is not a progress file of an import: remove it to send everything again", path)
	}
	return state, true, nil
}

// Save writes a progress file atomically.
func (s State) Save(path string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode progress: %w", err)
	}
	return fsx.WriteFile(path, append(text, '\n'))
}
