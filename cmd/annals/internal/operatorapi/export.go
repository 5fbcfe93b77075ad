package operatorapi

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/audit/prove"
	"github.com/annals-project/annals/projections/export"
)

// The routes of exports. That of a project takes an export.Request, that of the copy of a person an
// export.PersonRequest, and that of a bundle of the audit log an AuditExport.
const (
	pathExport       = "/operator/export"
	pathExportPerson = "/operator/export/person"
	pathExportAudit  = "/operator/audit/export"
)

// The frames of exports with values between the bytes.
const (
	frameBegan = 'B' // export.Began; the first frame
	frameMark  = 'M' // export.Mark: the lines before it are complete
	frameFile  = 'N' // the name of a file of a bundle, whose bytes follow
)

// ExportRoute returns the route of exports.
func ExportRoute(from export.Service) Route {
	return framed(pathExport, from.Begin,
		func(ctx context.Context, in export.Request, began export.Began, to *frameWriter) (any, error) {
			if err := to.Value(frameBegan, began); err != nil {
				return nil, err
			}
			return None{}, from.Write(ctx, in, began, to, func(m export.Mark) error { return to.Value(frameMark, m) })
		})
}

// Export exports a project: it writes the lines to a writer, and calls mark with each mark once the lines before it are
// written. began is called first. It returns nil once the export is complete.
func (c *Client) Export(
	ctx context.Context, in export.Request, to io.Writer, began func(export.Began) error, mark func(export.Mark) error,
) error {
	_, err := c.receive(ctx, pathExport, in, func(kind byte, payload []byte) error {
		switch kind {
		case frameBegan:
			return decoded(payload, began)
		case frameMark:
			return decoded(payload, mark)
		}
		return bytesTo(to, kind, payload)
	})
	return err
}

// ExportPersonRoute returns the route of the copies of people.
func ExportPersonRoute(from export.PersonService) Route {
	return framed(pathExportPerson, from.BeginPerson,
		func(ctx context.Context, in export.PersonRequest, began export.PersonBegan, to *frameWriter) (any, error) {
			return from.WritePerson(ctx, in, began, to, func() error { return nil })
		})
}

// ExportPerson writes the lines of the copy of a person to a writer, and returns what they are once they are complete.
func (c *Client) ExportPerson(
	ctx context.Context, in export.PersonRequest, to io.Writer,
) (sum export.PersonSummary, err error) {
	last, err := c.receive(ctx, pathExportPerson, in, func(kind byte, payload []byte) error {
		return bytesTo(to, kind, payload)
	})
	if err == nil {
		err = decoded(last, func(s export.PersonSummary) error { sum = s; return nil })
	}
	return sum, err
}

// AuditExport names a tree, and the events of which times its bundle lists.
type AuditExport struct {
	AuditRequest

	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// fileSink writes files as frames.
type fileSink struct{ frames *frameWriter }

// Create implements prove.Sink.
func (s fileSink) Create(name string) (io.Writer, error) {
	return s.frames, s.frames.Value(frameFile, name)
}

func (a Audit) exportRoute() Route {
	return framed(pathExportAudit,
		func(ctx context.Context, in AuditExport) (uuid.UUID, error) {
			id, _, err := treeOf(ctx, a.Tenancy, in.AuditRequest)
			return id, err
		},
		func(ctx context.Context, in AuditExport, id uuid.UUID, to *frameWriter) (any, error) {
			return None{}, a.Prover.Export(ctx, prove.ExportRequest{Organization: id, From: in.From, To: in.To}, fileSink{to})
		})
}

// ExportAudit writes the files of a bundle. It returns nil once the bundle is complete.
func (c *Client) ExportAudit(ctx context.Context, in AuditExport, to prove.Sink) error {
	var file io.Writer
	_, err := c.receive(ctx, pathExportAudit, in, func(kind byte, payload []byte) error {
		switch {
		case kind == frameFile:
			return decoded(payload, func(name string) (err error) {
				file, err = to.Create(name)
				return err
			})
		case file == nil && kind == frameBytes:
			return errors.New("the answer of the server has bytes of no file")
		}
		return bytesTo(file, kind, payload)
	})
	return err
}
