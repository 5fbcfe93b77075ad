package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/visits"
	"github.com/annals-project/annals/projections/access"
)

// operatorReads are the routes of the operator socket that show texts, with what the command is called.
var operatorReads = map[string]string{
	"/operator/tail": "annals events tail", "/operator/events": "annals events read",
	"/operator/export": "annals export", "/operator/recall/explain": "annals recall --explain",
}

const (
	// maxOperatorRequest bounds what is read of a request to know the organization that it concerns.
	maxOperatorRequest = 1 << 20
	// recordTime bounds the record of a read, which comes before the answer.
	recordTime = 2 * time.Second
)

// recordReads records what operators read, before it is shown. A read that cannot be recorded is in the log of the
// process: an operator must be able to look while Postgres is away.
func (s *Server) recordReads(serve http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if command := operatorReads[r.URL.Path]; command != "" && s.visits.DB != nil {
			body, err := io.ReadAll(io.LimitReader(r.Body, maxOperatorRequest))
			r.Body = readCloser{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
			if err == nil {
				err = s.recordRead(r, command, body)
			}
			if err != nil {
				s.cfg.Logger.WarnContext(r.Context(), "a read of an operator is not recorded", "command", command, "err", err)
			}
		}
		serve.ServeHTTP(w, r)
	})
}

// readCloser reads from one and closes another.
type readCloser struct {
	io.Reader
	io.Closer
}

// recordRead records a read for the organization that it concerns: that of the project or of the stream, and the first
// one, whose owners are the operators, if neither names one.
func (s *Server) recordRead(r *http.Request, command string, body []byte) error {
	var of struct{ Organization, Project, Stream string }
	if err := json.Unmarshal(body, &of); err != nil {
		return nil //nolint:nilerr // the route refuses it
	}
	ctx, cancel := context.WithTimeout(r.Context(), recordTime)
	defer cancel()
	call, err := operatorapi.CallOf(r, s.cfg.now())
	if err != nil {
		return err
	}
	read := &visit.OperatorRead{Command: command, Reason: call.Reason}
	list, err := access.Tenancy{Queries: s.read.access, Head: s.head()}.Organizations(ctx, "")
	if err != nil || len(list) == 0 {
		return err
	}
	id := list[0].ID
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
		Organization: id, Principal: call.Principal.Name(), RequestID: call.RequestID, At: call.ReceivedAt, Event: read,
	})
}
