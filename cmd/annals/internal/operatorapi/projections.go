package operatorapi

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/runner"
)

// The operations on projections. ListProjections returns the names in the order in which all of them
// are rebuilt. SetAside lets projections ignore an event; ErrRefused is its refusal. ListSetAside
// returns such events by position.
var (
	ListProjections = Operation[None, []string]{http.MethodGet, "/operator/projections"}
	SetAside        = Operation[SetAsideRequest, EventSetAside]{http.MethodPost, "/operator/set-aside"}
	ListSetAside    = Operation[None, []EventSetAside]{http.MethodGet, "/operator/set-aside"}
)

// pathRebuild is the route of a rebuild, with the options as its query. It returns one JSON value a
// line, and the rebuild ends if the caller goes away; a later one continues it.
const pathRebuild = "/operator/projections/{name}/rebuild"

// SetAsideRequest sets an event aside.
type SetAsideRequest struct {
	Position uint64 `json:"position"`
	// Projection is one projection, or "all"; "" means those that are stopped at the event.
	Projection string `json:"projection"`
	Reason     string `json:"reason"`
	By         string `json:"by"`
	// Force allows an event at which no projection is stopped.
	Force bool `json:"force"`
}

// EventSetAside is an event that is set aside.
type EventSetAside struct {
	Position uint64 `json:"position"`
	Stream   string `json:"stream"`
	Type     string `json:"type"`
	// Projections ignore the event; none are all.
	Projections []string  `json:"projections"`
	Reason      string    `json:"reason"`
	By          string    `json:"by"`
	At          time.Time `json:"at"`
}

// Projections serves the operations on the projections of a process.
type Projections struct {
	Runtime *runner.Runtime
	Journal *commands.Journal
	Now     func() time.Time
	// Stuck returns the deletions that this process cannot complete.
	Stuck func() []pipeline.Stuck
}

// Routes returns the routes of the operations.
func (p Projections) Routes() []Route {
	return []Route{
		ListProjections.Serve(func(context.Context, None) ([]string, error) { return p.Runtime.Names(), nil }),
		SetAside.Serve(p.SetAside),
		ListSetAside.Serve(p.listSetAside),
		{http.MethodPost + " " + pathRebuild, p.serveRebuild},
	}
}

// Rebuild builds a projection from the log in a shadow and switches over to it. It calls report with
// the progress, and ends early with its context.
func (p Projections) Rebuild(
	ctx context.Context, projection string, options runner.RebuildOptions, report func(RebuildProgress),
) error {
	return p.Runtime.RebuildWith(ctx, projection, options, reportTo(report))
}

// RebuildAll is Rebuild of projections at the same time.
func (p Projections) RebuildAll(
	ctx context.Context, names []string, options runner.RebuildOptions, report func(RebuildProgress),
) error {
	return p.Runtime.RebuildAll(ctx, names, options, reportTo(report))
}

func reportTo(report func(RebuildProgress)) func(runner.RebuildProgress) {
	return func(r runner.RebuildProgress) {
		report(RebuildProgress{
			Projection: r.Projection, Position: uint64(r.Position), Head: uint64(r.Head), Events: r.Events,
			Seconds: r.Took.Seconds(), LeftSeconds: r.Left.Seconds(), Resumed: uint64(r.Resumed),
			Compared: r.Compared, Done: r.Done,
		})
	}
}

func (p Projections) serveRebuild(out answers) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		options, err := readOptions(r.URL.Query())
		if err != nil {
			out.refuse(w, r, Refuse("%v", err))
			return
		}
		l := newLines(w)
		err = p.Rebuild(ctx, r.PathValue("name"), options, func(progress RebuildProgress) {
			if err := l.write(line{Progress: &progress}); err != nil {
				cancel(err) // the caller has gone away
			}
		})
		if err != nil {
			err = l.fail(err)
		}
		if err != nil {
			out.notWritten(r, err)
		}
	}
}

// writeOptions writes the options of a rebuild as the query of its route.
func writeOptions(o runner.RebuildOptions) url.Values {
	return url.Values{
		"rate": {strconv.Itoa(o.Rate)}, "restart": {strconv.FormatBool(o.Restart)}, "force": {strconv.FormatBool(o.Force)},
	}
}

// readOptions reads what writeOptions writes.
func readOptions(query url.Values) (o runner.RebuildOptions, err error) {
	var rateErr, restartErr, forceErr error
	o.Rate, rateErr = strconv.Atoi(query.Get("rate"))
	o.Restart, restartErr = strconv.ParseBool(query.Get("restart"))
	o.Force, forceErr = strconv.ParseBool(query.Get("force"))
	return o, errors.Join(rateErr, restartErr, forceErr)
}

// Projections returns the projections of a running server.
func (c *Client) Projections(ctx context.Context) ([]string, error) {
	return ListProjections.Call(ctx, c, None{})
}

// RebuildAll rebuilds projections of a running server one after the other: the server needs the other
// processors for its calls.
func (c *Client) RebuildAll(
	ctx context.Context, names []string, options runner.RebuildOptions, report func(RebuildProgress),
) error {
	for _, name := range names {
		if err := c.Rebuild(ctx, name, options, report); err != nil {
			return err
		}
	}
	return nil
}

// Rebuild rebuilds a projection of a running server and calls report with the progress. The server
// ends the rebuild with the context.
func (c *Client) Rebuild(
	ctx context.Context, projection string, options runner.RebuildOptions, report func(RebuildProgress),
) error {
	path, done := strings.Replace(pathRebuild, "{name}", url.PathEscape(projection), 1), false
	path += "?" + writeOptions(options).Encode()
	err := c.stream(ctx, http.MethodPost, path, func() {}, func(l line) error {
		if l.Progress != nil {
			done = l.Progress.Done
			report(*l.Progress)
		}
		return nil
	})
	if err == nil && !done {
		err = errors.New("the server stopped before the rebuild was done")
	}
	return err
}

// allProjections names every projection, also a later one.
const allProjections = "all"

// SetAside sets an event aside for the projections of the request.
func (p Projections) SetAside(ctx context.Context, in SetAsideRequest) (EventSetAside, error) {
	if in.Reason == "" || in.By == "" {
		return EventSetAside{}, Refuse("a reason and a name are missing")
	}
	at := eventstore.Position(in.Position)
	stopped := p.stoppedAt(ctx, at)
	already, isSetAside := p.Runtime.IsSetAside()[at]
	order := commands.SetAside{Position: at, Reason: in.Reason, By: in.By, At: p.Now()}
	switch {
	case in.Projection == allProjections:
	case in.Projection == "":
		order.Projections = stopped
	case !slices.Contains(p.Runtime.Names(), in.Projection):
		return EventSetAside{}, Refuse("there is no projection %s", in.Projection)
	default:
		order.Projections = []string{in.Projection}
	}
	if len(stopped) == 0 && !isSetAside && !in.Force {
		return EventSetAside{}, Refuse(
			"no projection is stopped at position %d; use --force with --projection to set it aside anyway", in.Position)
	}
	if len(order.Projections) == 0 && in.Projection == "" {
		if !isSetAside {
			return EventSetAside{}, Refuse("no projection is stopped at position %d: name one, or all", in.Position)
		}
		order.Projections = already.Projections // the same decision again
	}
	decided, err := commands.SetEventAside(ctx, p.Journal, order)
	if errors.Is(err, commands.ErrNoSuchEvent) || errors.Is(err, commands.ErrNotSetAside) {
		return EventSetAside{}, Refuse("%v", err)
	}
	if err != nil {
		return EventSetAside{}, err
	}
	return setAsideOf(decided), p.Runtime.RefreshSetAside(ctx)
}

// stoppedAt returns the projections that are stopped at a position, or that repeat it.
func (p Projections) stoppedAt(ctx context.Context, at eventstore.Position) (names []string) {
	for _, h := range p.Runtime.Health(ctx) {
		if h.Stop != nil && h.Stop.Position == at || h.Repeat != nil && h.Repeat.Next == at {
			names = append(names, h.Name)
		}
	}
	if slices.ContainsFunc(p.Stuck(), func(d pipeline.Stuck) bool { return d.Position == at }) {
		names = append(names, datapoints.Name)
	}
	return names
}

func (p Projections) listSetAside(ctx context.Context, _ None) ([]EventSetAside, error) {
	if err := p.Runtime.RefreshSetAside(ctx); err != nil {
		return nil, err
	}
	list := []EventSetAside{}
	for e := range maps.Values(p.Runtime.IsSetAside()) {
		list = append(list, setAsideOf(e))
	}
	slices.SortFunc(list, func(a, b EventSetAside) int { return cmp.Compare(a.Position, b.Position) })
	return list, nil
}

func setAsideOf(e registry.EventSetAside) EventSetAside {
	return EventSetAside{
		Position: e.Position, Stream: e.Stream, Type: e.Type, Projections: e.Projections,
		Reason: e.Reason, By: e.By, At: e.At,
	}
}
