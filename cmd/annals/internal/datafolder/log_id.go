package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/fsx"
)

// LogIDFile holds the id of the log whose keys are in the data folder. It is in no backup.
const LogIDFile = "log.id"

// RecordLog records the log whose keys are in the folder.
func (f Folder) RecordLog(logID uuid.UUID) error {
	recorded, err := f.recordedLog()
	if err != nil || recorded == logID {
		return err
	}
	return fsx.WriteFile(filepath.Join(f.Dir, LogIDFile), []byte(logID.String()+"\n"))
}

// CheckLog returns an error if the folder has the keys of another log than the one of the event store; uuid.Nil is an
// empty event store.
func (f Folder) CheckLog(logID uuid.UUID) error {
	recorded, err := f.recordedLog()
	if err != nil || recorded == logID {
		return err
	}
	const cure = "connect the event store of that log, or use another data folder for"
	if recorded != uuid.Nil && logID != uuid.Nil {
		return fmt.Errorf("data folder %s is of log %s, and the event store holds log %s: %s this one",
			f.Dir, recorded, logID, cure)
	}
	if recorded != uuid.Nil {
		return fmt.Errorf("the event store is empty, and data folder %s is of log %s: %s a new log", f.Dir, recorded, cure)
	}
	return nil
}

// recordedLog returns the log that RecordLog recorded, uuid.Nil for none.
func (f Folder) recordedLog() (uuid.UUID, error) {
	path := filepath.Join(f.Dir, LogIDFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return uuid.Nil, nil
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("read the id of the log: %w", err)
	}
	id, err := uuid.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return uuid.Nil, fmt.Errorf("%s does not hold the id of a log: remove it, and the next start writes it", path)
	}
	return id, nil
}

// CheckUnused returns an error if the credentials file, which an interrupted first start may have written, names the
// owner of an organization: then a log was complete once.
func (f Folder) CheckUnused() error {
	values, err := ReadCredentials(f.Dir)
	if err != nil || values[OwnerEmailName] == "" {
		return err
	}
	return fmt.Errorf("the event store is empty, and %s has the owner of an organization of another log: connect the "+
		"event store of that log, or use another data folder for a new log", filepath.Join(f.Dir, CredentialsFile))
}
