package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/visits"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/reads"
)

const (
	// maxOperatorRequest bounds what is read of a request to know the organization that it concerns.
	maxOperatorRequest = 1 << 20
	// recordTime bounds the record of a read, which comes before the answer.
	recordTime = 2 * time.Second
)

// recordReads records what operators read, before it is shown. What cannot be recorded now is a line of the operator
// log, since an operator must be able to look while Postgres is away.
func (s *Server) recordReads(serve http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if command := operatorapi.ShowsTexts(r); command != "" && s.visits.DB != nil {
			if err := s.recordOperator(r, command); err != nil {
				s.cfg.Logger.ErrorContext(r.Context(), "a read of an operator is not recorded", "command", command, "err", err)
			}
		}
		serve.ServeHTTP(w, r)
	})
}

// recordOperator records a read of the operator at the other end of the socket. It leaves the body of the request to be
// read again.
func (s *Server) recordOperator(r *http.Request, command string) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxOperatorRequest))
	r.Body = readCloser{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	if err != nil {
		return err
	}
	call, err := operatorapi.CallOf(r, s.cfg.now())
	if err != nil {
		return err
	}
	line := operatorLine{
		At: call.ReceivedAt, Principal: call.Principal.Name(), Reason: call.Reason, RequestID: call.RequestID,
		Command: command,
	}
	if err := json.Unmarshal(body, &line.Of); err != nil {
		return nil //nolint:nilerr // the route refuses it
	}
	if err := s.recordRead(r.Context(), line); err != nil {
		return s.operatorLog.add(line)
	}
	return nil
}

// readCloser reads from one and closes another.
type readCloser struct {
	io.Reader
	io.Closer
}

// recordRead records a read for the organization that it concerns: that of the project or of the stream, and the first
// one, whose owners are the operators, if neither names one.
func (s *Server) recordRead(ctx context.Context, line operatorLine) error {
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	read, of := &visit.OperatorRead{Command: line.Command, Reason: line.Reason}, line.Of
	list, err := access.Tenancy{Queries: s.read.access, Head: s.head()}.Organizations(ctx, "")
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return errors.New("there is no organization yet")
	}
	id := list[0].ID
	if of.Request != uuid.Nil {
		if at, found, err := (reads.Queries{DB: s.storage.db}).Find(ctx, of.Request, 0); err != nil || found {
			id, read.ProjectID = at.Organization, at.Project
			if err != nil {
				return err
			}
		}
	}
	if category := stream.Category(of.Stream); category == stream.Organization || category == stream.Visits {
		id = stream.Owner(of.Stream)
	}
	for _, o := range list {
		named := of.Organization == "" || strings.EqualFold(of.Organization, o.Name) || of.Organization == o.ID.String()
		if of.Project == "" || !named {
			continue
		}
		p, found, err := s.read.access.ProjectNamed(ctx, o.ID, of.Project)
		if err != nil {
			return err
		}
		if found {
			id, read.ProjectID = o.ID, p.Project.ID
			break
		}
	}
	return s.visits.Add(ctx, visits.Entry{
		Organization: id, Principal: line.Principal, RequestID: line.RequestID, At: line.At, Event: read,
	})
}

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
