package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	client "github.com/annals-project/annals/client"
)

// FilesState is the progress of an import of files: the batches that were acknowledged. It is a file to which each of
// them adds a line. Losing it costs time only, since a batch that is sent again changes nothing.
type FilesState struct {
	Target
	// ProjectID is the number of the project in its store, 0 before the first batch.
	ProjectID     int64
	LastIngestion string
	// Notice is why the progress in the file is not used, "" if it is.
	Notice string
	// sent holds for each key what became of its batch.
	sent map[string]sentBatch
	file *os.File // nil keeps no progress
}

// sentBatch is a batch that was acknowledged: how many data points were unchanged, and those that were left out.
type sentBatch struct {
	unchanged int
	left      []LeftOut
}

// isOpen reports whether another run sends the batch again: an audience may exist by then. What was deleted stays out.
func (s sentBatch) isOpen() bool {
	return slices.ContainsFunc(s.left, func(l LeftOut) bool { return !l.Deleted })
}

// stateLine is a line of the file: the first one has the version, the server and the project.
type stateLine struct {
	Version   int    `json:"version,omitempty"`
	Server    string `json:"server,omitempty"`
	Project   string `json:"project,omitempty"`
	Sent      string `json:"sent,omitempty"`
	Unchanged int    `json:"unchanged,omitempty"`
	ProjectID int64  `json:"projectId,omitempty"`
	Ingestion string `json:"ingestion,omitempty"`
	// Left are the data points that were left out.
	Left []LeftOut `json:"left,omitempty"`
}

const filesVersion = 2

// OpenFilesState opens the progress of an import, or begins one. It begins again over the progress of another project.
// The caller must close it.
func OpenFilesState(path string, to Target) (*FilesState, error) {
	s := &FilesState{Target: to, sent: map[string]sentBatch{}}
	var err error
	if s.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("open progress file: %w (--state names another one)", err)
	}
	text, err := io.ReadAll(s.file)
	if err == nil {
		err = s.read(path, text)
	}
	if err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// Close closes the file.
func (s *FilesState) Close() error {
	err := s.file.Close()
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}

func (s *FilesState) read(path string, text []byte) error {
	// A crash may have cut the last line.
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	if len(whole) == 0 {
		return s.begin(path, text)
	}
	first := true
	for line := range bytes.Lines(whole) {
		var l stateLine
		if json.Unmarshal(line, &l) != nil || first != (l.Version == filesVersion) {
			return fmt.Errorf("%s is not a progress file of an import of files: name another one with --state", path)
		}
		if before := (Target{l.Server, l.Project}); first && !before.is(s.Target) {
			s.Notice = before.restart(path, s.Target)
			return s.begin(path, nil)
		}
		if !first {
			s.sent[l.Sent], s.ProjectID, s.LastIngestion = sentBatch{l.Unchanged, l.Left}, l.ProjectID, l.Ingestion
		}
		first = false
	}
	if err := s.file.Truncate(int64(len(whole))); err != nil {
		return fmt.Errorf("cut progress file: %w", err)
	}
	_, err := s.file.Seek(int64(len(whole)), io.SeekStart)
	return err
}

// begin writes the first line, over a part of it that a crash left.
func (s *FilesState) begin(path string, text []byte) error {
	line := stateLine{Version: filesVersion, Server: s.Server, Project: s.Project}
	header, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encode progress: %w", err)
	}
	if !bytes.HasPrefix(header, text) {
		return fmt.Errorf("%s is not a progress file of an import of files: name another one with --state", path)
	}
	if err := s.file.Truncate(0); err != nil {
		return fmt.Errorf("cut progress file: %w", err)
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("cut progress file: %w", err)
	}
	return s.write(line)
}

// add records an acknowledged batch. r is nil for one of which nothing was left.
func (s *FilesState) add(key string, done sentBatch, r *client.BatchReceipt) error {
	if r == nil {
		r = &client.BatchReceipt{ProjectID: s.ProjectID, IngestionID: s.LastIngestion}
	}
	if s.ProjectID != 0 && s.ProjectID != r.ProjectID {
		return errors.New("the key belongs to another project than the one of this import: name another progress file " +
			"with --state to send everything to the other project")
	}
	s.ProjectID, s.LastIngestion, s.sent[key] = r.ProjectID, r.IngestionID, done
	return s.write(stateLine{
		Sent: key, Unchanged: done.unchanged, ProjectID: r.ProjectID, Ingestion: r.IngestionID, Left: done.left,
	})
}

func (s *FilesState) write(l stateLine) error {
	text, err := json.Marshal(l)
	if err == nil {
		_, err = s.file.Write(append(text, '\n'))
	}
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write progress file: %w", err)
	}
	return nil
}
