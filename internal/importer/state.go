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
	Target
	// ProjectID is the number of the project in its store, 0 before the first batch.
	ProjectID int64 `json:"projectId"`
	// Offset is the end of the part of the input that was acknowledged without a gap, Sum its SHA-256.
	Offset int64  `json:"offset"`
	Sum    string `json:"sha256"`
	// Points counts the data points before Offset, Unchanged those that the server already had.
	Points    int `json:"points"`
	Unchanged int `json:"unchanged"`
	Batches   int `json:"batches"`
	// Skipped counts the memories of an export that were not sent.
	Skipped int `json:"skipped,omitempty"`
	// Deleted and Refused count the data points that were left out: those that were deleted before, and those that the
	// service refused for themselves. Left names the first of them.
	Deleted int       `json:"deleted,omitempty"`
	Refused int       `json:"refused,omitempty"`
	Left    []LeftOut `json:"left,omitempty"`
	// LastIngestion is the id of a send of this import, whose status shows the progress of the project.
	LastIngestion string `json:"lastIngestion"`
}

// Target is where an import sends to.
type Target struct {
	// Server is the address that received the batches.
	Server string `json:"server"`
	// Project is the id of the project, which no other project has, in this store or another. It is "" from a server
	// that sends none, and in a progress file of an earlier version.
	Project string `json:"project,omitempty"`
}

// is reports whether what was sent to t was sent to now.
func (t Target) is(now Target) bool {
	return t.Project == now.Project && (now.Project != "" || t.Server == now.Server)
}

// restart returns why an import to now does not continue the progress that a file holds of one to t.
func (t Target) restart(path string, now Target) string {
	switch {
	case t.Project == "" && t.Server == now.Server:
		return path + " does not name the project that was sent to, because an earlier version wrote it: " +
			"everything is sent again, and what is known is found unchanged"
	case t.Server != now.Server:
		return fmt.Sprintf("%s is the progress of an import to another project, at %s: everything is sent to this one "+
			"(--state FILE keeps the progress of both)", path, t.Server)
	default:
		return path + " is the progress of an import to another project, or to one of another data folder: " +
			"everything is sent to this one (--state FILE keeps the progress of both)"
	}
}

const stateVersion = 1

// NewState begins an import.
func NewState(to Target) State {
	return State{Version: stateVersion, ImportID: rand.Text(), Target: to, Sum: emptySum()}
}

// Continue returns the progress from which an import goes on. That of another project begins again, and notice is the
// reason.
func (s State) Continue(path string, to Target) (state State, notice string) {
	if s.Target.is(to) {
		s.Server = to.Server
		if s.Refused == 0 {
			return s, ""
		}
		state = NewState(to)
		state.ImportID = s.ImportID
		return state, fmt.Sprintf("an earlier run left out data points that the service refused (%d): everything is sent "+
			"again, and what is known is found unchanged", s.Refused)
	}
	state = NewState(to)
	if s.Project == "" {
		state.ImportID = s.ImportID // perhaps the same project: the same batches have the same keys
	}
	return state, s.restart(path, to)
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
