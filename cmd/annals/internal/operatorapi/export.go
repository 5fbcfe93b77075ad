package operatorapi

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/annals-project/annals/internal/frames"
	"github.com/annals-project/annals/projections/export"
)

// pathExport is the route of an export, of an export.Request. It returns frames.
const pathExport = "/operator/export"

// The frames of an export, besides its lines, which may take several frames.
const (
	frameBegan   = 'B' // export.Began; the first frame
	frameMark    = 'M' // export.Mark: the lines before it are complete
	frameEnd     = 'E' // the export is complete; the last frame
	frameFailure = 'F' // refusal; the last frame
)

// ExportRoute returns the route of exports.
func ExportRoute(from export.Service) Route {
	return Route{http.MethodPost + " " + pathExport, func(out answers) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			in, _, err := readRequest[export.Request](r)
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			began, err := from.Begin(r.Context(), in)
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			w.Header().Set("Content-Type", "application/octet-stream")
			f := frames.NewWriter(w, http.NewResponseController(w).Flush)
			if err = f.Value(frameBegan, began); err == nil {
				err = from.Write(r.Context(), in, began, f, func(m export.Mark) error { return f.Value(frameMark, m) })
			}
			switch {
			case err == nil:
				err = f.Value(frameEnd, None{})
			case r.Context().Err() == nil:
				err = f.Value(frameFailure, refusal{codeFailed, err.Error()})
			}
			if err != nil {
				out.notWritten(r, err)
			}
		}
	}}
}

// Export exports a project: it writes the lines to a writer, and calls mark with each mark once the lines before it are
// written. began is called first. It returns nil once the export is complete.
func (c *Client) Export(
	ctx context.Context, in export.Request, to io.Writer, began func(export.Began) error, mark func(export.Mark) error,
) error {
	answer, err := c.send(ctx, http.MethodPost, pathExport, in)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	for body := frames.NewReader(answer.Body); ; {
		kind, payload, err := body.Next()
		if err != nil {
			return err
		}
		switch kind {
		case frameBegan:
			err = frames.Decoded(payload, began)
		case frames.Bytes:
			_, err = to.Write(payload)
		case frameMark:
			err = frames.Decoded(payload, mark)
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
