package importer

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// State says how far an import has come. It is written beside the input after each batch.
type State struct {
	Version int `json:"version"`
	// ImportID makes the idempotency keys of this import its own.
	ImportID string `json:"importId"`
	// Server is the address that the batches went to, and ProjectID the project that took them; 0 before the first.
	Server    string `json:"server"`
	ProjectID int64  `json:"projectId"`
	// Offset is where the part of the input ends that was acknowledged without a gap, and Sum its SHA-256.
	Offset int64  `json:"offset"`
	Sum    string `json:"sha256"`
	// Points counts the data points before Offset, Unchanged those that the server knew already.
	Points    int `json:"points"`
	Unchanged int `json:"unchanged"`
	Batches   int `json:"batches"`
	// LastIngestion is the id of a send of this import; it serves to ask how far the project is.
	LastIngestion string `json:"lastIngestion"`
}

const stateVersion = 1

// NewState begins an import to a server.
func NewState(server string) State {
	return State{Version: stateVersion, ImportID: rand.Text(), Server: server, Sum: emptySum()}
}

func emptySum() string { return newLines(bytes.NewReader(nil)).sum() }

// LoadState reads a progress file; ok is false where there is none.
func LoadState(path string) (state State, ok bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, false, nil
	}
	if err != nil {
		return State{}, false, fmt.Errorf("read progress file: %w", err)
	}
	if err := json.Unmarshal(text, &state); err != nil || state.Version != stateVersion || state.ImportID == "" {
		return State{}, false, fmt.Errorf("%s is no progress file of an import: remove it to send everything again", path)
	}
	return state, true, nil
}

// Save writes a progress file so that a reader sees the whole of it or of the one before, whatever happens.
func (s State) Save(path string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode progress: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write progress file: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if s.Batches == 0 {
		err = errors.Join(err, f.Sync()) // the id of the import must outlive what is sent under it
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write progress file: %w", err), os.Remove(f.Name()))
	}
	return nil
}
