package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore/backoff"
)

// operatorLog keeps what operators read while it cannot be recorded: a file of JSON lines in the data folder. The next
// start records them and removes the file. A crash in between may record a line twice, under one request id.
type operatorLog struct {
	mu   sync.Mutex
	path string
}

// maxOperatorLog bounds the file in bytes.
const maxOperatorLog = 16 << 20

// operatorLine is one read. Of is what the request named.
type operatorLine struct {
	At        time.Time `json:"at"`
	Principal string    `json:"principal"`
	Reason    string    `json:"reason,omitempty"`
	RequestID uuid.UUID `json:"requestId"`
	Command   string    `json:"command"`
	Of        readOf    `json:"of"`
}

// readOf is what a request of an operator names.
type readOf struct {
	Organization string `json:"organization,omitempty"`
	Project      string `json:"project,omitempty"`
	Stream       string `json:"stream,omitempty"`
	// Request is that of a read record.
	Request uuid.UUID `json:"request,omitzero"`
}

func newOperatorLog(dir string) *operatorLog {
	return &operatorLog{path: filepath.Join(dir, "operator.log")}
}

// add appends a line, and returns once it is on the disk.
func (l *operatorLog) add(line operatorLine) (err error) {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size()+int64(len(text)) >= maxOperatorLog {
		return fmt.Errorf("%s has %d bytes: start the service again, which records its lines", l.path, info.Size())
	}
	if _, err := file.Write(append(text, '\n')); err != nil {
		return err
	}
	return file.Sync()
}

// take calls record with each line and removes the file. A line that is no JSON was cut by a crash, and is passed over.
func (l *operatorLog) take(record func(operatorLine) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, err := os.ReadFile(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxOperatorLog)
	for lines.Scan() {
		var line operatorLine
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		if err := record(line); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return os.Remove(l.path)
}

// recordEarlierReads records what operators read before the start, once it can.
func (s *Server) recordEarlierReads(ctx context.Context) error {
	pause := backoff.Backoff{First: time.Second, Longest: time.Minute}
	for {
		err := s.operatorLog.take(func(line operatorLine) error { return s.recordRead(ctx, line) })
		if err == nil {
			<-ctx.Done()
			return nil
		}
		s.cfg.Logger.WarnContext(ctx, "what operators read is not recorded yet, will retry", "err", err)
		if pause.Wait(ctx) != nil {
			return nil
		}
	}
}
