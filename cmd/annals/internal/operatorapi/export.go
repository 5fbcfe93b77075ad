package operatorapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/export"
)

// pathExport is the route of an export, with ExportRequest as its query. It returns frames.
const pathExport = "/operator/export"

// exportWait bounds the wait for the projections at the beginning of an export.
const exportWait = time.Minute

// ExportRequest selects what an export writes.
type ExportRequest struct {
	// Organization is a name or an id, "" for any.
	Organization, Project string
	Memories              bool
	// From continues an export, nil for a new one.
	From *ExportFrom
}

// ExportFrom is where an export continues.
type ExportFrom struct {
	// AsOf is that of ExportBegan.
	AsOf time.Time
	// After is the place of the last mark, nil if there was none.
	After *export.Place
}

// ExportBegan is the beginning of an export.
type ExportBegan struct {
	ProjectID uuid.UUID `json:"projectId"`
	// AsOf is the time that the export shows.
	AsOf time.Time `json:"asOf"`
}

// Exports exports projects.
type Exports struct {
	Reader   export.Reader
	Projects ProjectFinder
	Log      interface {
		Head(ctx context.Context) (eventstore.Position, error)
	}
	Waiter interface {
		Wait(ctx context.Context, position eventstore.Position, projections ...string) error
	}
	Now func() time.Time
}

// ProjectFinder finds projects for an operator.
type ProjectFinder interface {
	FindProjects(ctx context.Context, organization, slug string) ([]access.Project, error)
}

// findProject returns the only project with a slug. ErrRefused is its refusal.
func findProject(ctx context.Context, in ProjectFinder, organization, slug string) (access.Project, error) {
	found, err := in.FindProjects(ctx, organization, slug)
	switch {
	case err != nil:
		return access.Project{}, err
	case len(found) == 0 && organization != "":
		return access.Project{}, Refuse("organization %q has no project %q", organization, slug)
	case len(found) == 0:
		return access.Project{}, Refuse("there is no project %q", slug)
	case len(found) > 1:
		return access.Project{}, Refuse("several organizations have a project %q, name one with --org", slug)
	}
	return found[0], nil
}

// Route returns the route of exports.
func (e Exports) Route() Route {
	return Route{http.MethodGet + " " + pathExport, func(out answers) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			in, err := exportRequestOf(r.URL.Query())
			if err != nil {
				out.refuse(w, r, &refusedError{errInvalid, err.Error()})
				return
			}
			began, err := e.begin(r.Context(), in)
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			f := newFrames(w)
			err = e.write(r.Context(), in, began, f)
			if err != nil && r.Context().Err() == nil {
				err = f.send(frameFailure, refusal{codeFailed, err.Error()})
			}
			if err != nil {
				out.notWritten(r, err)
			}
		}
	}}
}

// begin waits until the tables show what was answered before.
func (e Exports) begin(ctx context.Context, in ExportRequest) (began ExportBegan, err error) {
	ctx, cancel := context.WithTimeout(ctx, exportWait)
	defer cancel()
	head, err := e.Log.Head(ctx)
	if err == nil {
		err = e.Waiter.Wait(ctx, head, projection.Access, projection.DataPoints, projection.Directory, projection.Memories)
	}
	if err != nil {
		return began, err
	}
	project, err := findProject(ctx, e.Projects, in.Organization, in.Project)
	if err != nil {
		return began, err
	}
	began.ProjectID = project.ID
	if in.From != nil {
		began.AsOf = in.From.AsOf
		return began, nil
	}
	began.AsOf, err = e.Reader.AsOf(ctx, project.ID, e.Now())
	return began, err
}

func (e Exports) write(ctx context.Context, in ExportRequest, began ExportBegan, f *frames) error {
	if err := f.send(frameBegan, began); err != nil {
		return err
	}
	selected := export.Selection{Project: began.ProjectID, AsOf: began.AsOf, Memories: in.Memories}
	if in.From != nil {
		selected.After = in.From.After
	}
	err := e.Reader.Write(ctx, selected, f, func(m export.Mark) error { return f.send(frameMark, m) })
	if err != nil {
		return err
	}
	return f.send(frameEnd, None{})
}

func exportRequestOf(q url.Values) (in ExportRequest, err error) {
	in = ExportRequest{Organization: q.Get("org"), Project: q.Get("project"), Memories: q.Get("memories") == "true"}
	if in.Project == "" {
		return in, errors.New("a project must be named")
	}
	if text := q.Get("asOf"); text != "" {
		in.From = &ExportFrom{}
		if in.From.AsOf, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return in, errors.New("asOf is not a time")
		}
	}
	if text := q.Get("occurredAt"); text != "" && in.From != nil {
		in.From.After = &export.Place{SourceID: q.Get("sourceId")}
		if in.From.After.OccurredAt, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return in, errors.New("occurredAt is not a time")
		}
	}
	return in, nil
}

func (in ExportRequest) url() string {
	q := url.Values{"org": {in.Organization}, "project": {in.Project}, "memories": {strconv.FormatBool(in.Memories)}}
	if in.From != nil {
		q.Set("asOf", in.From.AsOf.Format(time.RFC3339Nano))
		if after := in.From.After; after != nil {
			q.Set("occurredAt", after.OccurredAt.Format(time.RFC3339Nano))
			q.Set("sourceId", after.SourceID)
		}
	}
	return pathExport + "?" + q.Encode()
}

// Export exports a project: it writes the lines to a writer, and calls mark with each mark once the lines before it are
// written. began is called first. It returns nil once the export is complete.
func (c *Client) Export(
	ctx context.Context, in ExportRequest, to io.Writer, began func(ExportBegan) error, mark func(export.Mark) error,
) error {
	answer, err := c.open(ctx, http.MethodGet, in.url())
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	body, buffer := bufio.NewReaderSize(answer, maxFrame), make([]byte, maxFrame)
	for {
		kind, payload, err := readFrame(body, buffer)
		if err != nil {
			return err
		}
		switch kind {
		case frameBegan:
			err = decoded(payload, began)
		case frameLines:
			_, err = to.Write(payload)
		case frameMark:
			err = decoded(payload, mark)
		case frameEnd:
			return nil
		case frameFailure:
			err = decoded(payload, func(r refusal) error { return errors.New(r.Message) })
		default:
			err = fmt.Errorf("%w: a frame of an unknown kind", errBrokenOff)
		}
		if err != nil {
			return err
		}
	}
}

func decoded[T any](payload []byte, do func(T) error) error {
	var value T
	if err := json.Unmarshal(payload, &value); err != nil {
		return fmt.Errorf("decode the answer of the server: %w", err)
	}
	return do(value)
}
