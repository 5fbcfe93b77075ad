package operatorapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/annals-project/annals/internal/frames"
	"github.com/annals-project/annals/projections/audit/prove"
)

// pathExportAudit is the route of bundles of the audit log, of an AuditExport. It returns frames.
const pathExportAudit = "/operator/audit/export"

// frameFile is the frame with the name of a file, whose bytes follow.
const frameFile = 'N'

// AuditExport names a tree, and the events of which times its bundle lists.
type AuditExport struct {
	AuditRequest

	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// fileSink writes files as frames.
type fileSink struct{ frames *frames.Writer }

// Create implements prove.Sink.
func (s fileSink) Create(name string) (io.Writer, error) {
	return s.frames, s.frames.Value(frameFile, name)
}

func (a Audit) exportRoute() Route {
	return Route{http.MethodPost + " " + pathExportAudit, func(out answers) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			in, _, err := readRequest[AuditExport](r)
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			id, _, err := treeOf(r.Context(), a.Tenancy, in.AuditRequest)
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			w.Header().Set("Content-Type", "application/octet-stream")
			f := frames.NewWriter(w, http.NewResponseController(w).Flush)
			err = a.Prover.Export(r.Context(), prove.ExportRequest{Organization: id, From: in.From, To: in.To}, fileSink{f})
			switch {
			case err == nil:
				err = f.Value(frameEnd, None{})
			case r.Context().Err() == nil:
				_, failure := refusalOf(err)
				err = f.Value(frameFailure, failure)
			}
			if err != nil {
				out.notWritten(r, err)
			}
		}
	}}
}

// ExportAudit writes the files of a bundle. It returns nil once the bundle is complete.
func (c *Client) ExportAudit(ctx context.Context, in AuditExport, to prove.Sink) error {
	answer, err := c.send(ctx, http.MethodPost, pathExportAudit, in)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	var file io.Writer
	for body := frames.NewReader(answer.Body); ; {
		kind, payload, err := body.Next()
		if err != nil {
			return err
		}
		switch kind {
		case frameFile:
			err = frames.Decoded(payload, func(name string) error {
				file, err = to.Create(name)
				return err
			})
		case frames.Bytes:
			if file == nil {
				return errors.New("the answer of the server has bytes of no file")
			}
			_, err = file.Write(payload)
		case frameEnd:
			return nil
		case frameFailure:
			err = frames.Decoded(payload, func(r refusal) error { return r.err() })
		default:
			err = fmt.Errorf("%w: a frame of an unknown kind", frames.ErrBrokenOff)
		}
		if err != nil {
			return err
		}
	}
}
