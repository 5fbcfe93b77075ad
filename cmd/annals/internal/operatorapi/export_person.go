package operatorapi

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/annals-project/annals/internal/frames"
	"github.com/annals-project/annals/projections/export"
)

// pathExportPerson is the route of the copy of a person, of an export.PersonRequest. It returns frames: the lines, and
// an export.PersonSummary.
const pathExportPerson = "/operator/export/person"

// ExportPersonRoute returns the route of the copies of people.
func ExportPersonRoute(from export.PersonService) Route {
	return Route{http.MethodPost + " " + pathExportPerson, func(out answers) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			in, _, err := readRequest[export.PersonRequest](r)
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			began, err := from.BeginPerson(r.Context(), in)
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			w.Header().Set("Content-Type", "application/octet-stream")
			f := frames.NewWriter(w, http.NewResponseController(w).Flush)
			sum, err := from.WritePerson(r.Context(), in, began, f, func() error { return nil })
			switch {
			case err == nil:
				err = f.Value(frameEnd, sum)
			case r.Context().Err() == nil:
				err = f.Value(frameFailure, refusal{codeFailed, err.Error()})
			}
			if err != nil {
				out.notWritten(r, err)
			}
		}
	}}
}

// ExportPerson writes the lines of the copy of a person to a writer, and returns what they are once they are complete.
func (c *Client) ExportPerson(
	ctx context.Context, in export.PersonRequest, to io.Writer,
) (sum export.PersonSummary, err error) {
	answer, err := c.send(ctx, http.MethodPost, pathExportPerson, in)
	if err != nil {
		return sum, err
	}
	defer func() { _ = answer.Body.Close() }()
	for body := frames.NewReader(answer.Body); ; {
		kind, payload, err := body.Next()
		if err != nil {
			return sum, err
		}
		switch kind {
		case frames.Bytes:
			_, err = to.Write(payload)
		case frameEnd:
			err = frames.Decoded(payload, func(s export.PersonSummary) error { sum = s; return nil })
			return sum, err
		case frameFailure:
			err = frames.Decoded(payload, func(r refusal) error { return r.err() })
		default:
			err = fmt.Errorf("%w: a frame of an unknown kind", frames.ErrBrokenOff)
		}
		if err != nil {
			return sum, err
		}
	}
}
