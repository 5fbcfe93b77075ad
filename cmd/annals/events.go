package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/inspect"
)

// EventsCmd is the group "annals events".
type EventsCmd struct {
	Tail EventsTailCmd `cmd:"" help:"Show events as they are written, until interrupted."`
	Read EventsReadCmd `cmd:"" help:"Show the events of one stream."`

	SetAside EventsSetAsideCmd `cmd:"" name:"set-aside" help:"Let projections ignore an event that they cannot apply, or list such events."`
}

// LogSource names the log that a command reads: through the socket of a server on a data folder,
// or at the address of an event store.
type LogSource struct {
	operatorapi.WhoFlags
	DataDir    string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	EventStore string `name:"eventstore" setting:"ANNALS_EVENTSTORE" default:"embedded" help:"Event store: embedded, which the running server reads, or esdb://host:2113, which this command reads."`
}

// eventReader reads events of a log.
type eventReader interface {
	Tail(ctx context.Context, t inspect.Tail, opened func(), emit func(inspect.Event) error) error
	Events(ctx context.Context, s inspect.Range, emit func(inspect.Event) error) error
}

// open opens the log. The caller closes it with done.
func (s LogSource) open() (from eventReader, done func() error, err error) {
	if s.EventStore == server.Embedded {
		return operatorapi.Dial(s.DataDir), func() error { return nil }, nil
	}
	log, done, err := server.OpenLog(s.EventStore)
	return log, done, err
}

// EventsTailCmd is "annals events tail".
type EventsTailCmd struct {
	LogSource
	From   string `name:"from" placeholder:"POSITION" default:"end" help:"Where to begin: start, end, or after a position."`
	Stream string `name:"stream" help:"Only events of this stream."`
	Type   string `name:"type" placeholder:"PREFIX" help:"Only events of types with this prefix."`
	JSON   bool   `name:"json" help:"Print one JSON value a line."`
}

// Run shows events until the context ends, which is no failure.
func (c *EventsTailCmd) Run(ctx context.Context, env *Env) (err error) {
	t := inspect.Tail{Stream: c.Stream, Type: c.Type}
	switch c.From {
	case "start":
	case "end":
		t.FromEnd = true
	default:
		if t.After, err = strconv.ParseUint(c.From, 10, 64); err != nil {
			return fmt.Errorf("--from is %q: want start, end, or the position of an event", c.From)
		}
	}
	from, done, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	show := showEvent
	if c.JSON {
		show = showEventJSON
	}
	err = from.Tail(ctx, t, func() {}, func(e inspect.Event) error { return show(env.Stdout, e) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// EventsReadCmd is "annals events read".
type EventsReadCmd struct {
	LogSource
	Stream    string `arg:"" help:"Name of the stream."`
	From      *int64 `name:"from" placeholder:"REVISION" help:"First revision to show; default the first event or, backwards, the last one."`
	Backwards bool   `name:"backwards" help:"Newest first."`
	Limit     int    `name:"limit" default:"100" help:"Most events to show; 0 shows all."`
	JSON      bool   `name:"json" help:"Print the events as one JSON value."`
}

// Run shows the events of a stream.
func (c *EventsReadCmd) Run(ctx context.Context, env *Env) (err error) {
	if c.Limit < 0 || c.From != nil && *c.From < 0 {
		return errors.New("--limit and --from are not below 0")
	}
	from, done, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	shown := []inspect.Event{}
	emit := func(e inspect.Event) error {
		shown = append(shown, e)
		return nil
	}
	count := 0
	if !c.JSON { // print each event when it arrives
		emit = func(e inspect.Event) error {
			count++
			return showEvent(env.Stdout, e)
		}
	}
	err = from.Events(ctx, inspect.Range{Stream: c.Stream, From: c.From, Backwards: c.Backwards, Limit: c.Limit},
		emit)
	if errors.Is(err, eventstore.ErrDeleted) {
		return fmt.Errorf("stream %s was deleted", c.Stream)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, map[string]any{"stream": c.Stream, "events": shown})
	}
	if count == 0 {
		_, err = fmt.Fprintln(env.Stdout, "the stream has no such events")
	}
	return err
}

// showEvent writes position, stream@revision, type, time, size and payload on one line.
func showEvent(w io.Writer, e inspect.Event) error {
	payload := harmless(string(e.Data))
	if e.Data == nil {
		payload = fmt.Sprintf("(%d bytes that are no JSON)", len(e.Raw))
	}
	_, err := fmt.Fprintf(w, "%d %s@%d %s %s %dB %s\n", e.Position, visible(e.Stream), e.Revision, visible(e.Type),
		e.Created.Format(time.RFC3339Nano), e.Size, payload)
	return err
}

// visible escapes the characters of a name that control a terminal.
func visible(name string) string {
	quoted := strconv.Quote(name)
	if plain := quoted[1 : len(quoted)-1]; plain == name && !strings.Contains(name, " ") {
		return name
	}
	return quoted
}

// harmless escapes the characters that JSON allows and that control a terminal.
func harmless(payload string) string {
	if strings.IndexFunc(payload, unicode.IsControl) < 0 {
		return payload
	}
	var b strings.Builder
	for _, r := range payload {
		if unicode.IsControl(r) {
			_, _ = fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func showEventJSON(w io.Writer, e inspect.Event) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(e)
}
