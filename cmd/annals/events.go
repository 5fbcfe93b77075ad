package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/annals-project/annals/cmd/annals/internal/auditcli"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/registry"
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

// EventsSetAsideCmd is "annals events set-aside".
type EventsSetAsideCmd struct {
	DataDir    string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	Position   uint64 `arg:"" optional:"" help:"Position of the event, as /readyz shows it; without it, list the events that are set aside."`
	Reason     string `name:"reason" help:"The reason, which the log records."`
	Projection string `name:"projection" help:"Projection that ignores the event, or all; default those that are stopped at it."`
	By         string `name:"by" help:"Who decides it; default the user of this system."`
	Force      bool   `name:"force" help:"Also an event at which no projection is stopped."`
	JSON       bool   `name:"json" help:"Print JSON."`
}

// Run sets an event aside, or lists what is.
func (c *EventsSetAsideCmd) Run(ctx context.Context, env *Env) error {
	server := operatorapi.Dial(c.DataDir)
	if c.Position == 0 {
		list, err := operatorapi.ListSetAside.Call(ctx, server, operatorapi.None{})
		if err != nil {
			return err
		}
		return c.show(env, list)
	}
	if strings.TrimSpace(c.Reason) == "" {
		return errors.New("--reason is missing: say why the event is set aside, it is kept in the log")
	}
	by := c.By
	if by == "" {
		current, err := user.Current()
		if err != nil {
			return fmt.Errorf("who decides it is not known (say it with --by): %w", err)
		}
		by = current.Username
	}
	setAside, err := operatorapi.SetAside.Call(ctx, server, operatorapi.SetAsideRequest{
		SetAside: tenancy.SetAside{
			Position: eventstore.Position(c.Position), Projection: c.Projection, Reason: c.Reason, Force: c.Force,
		},
		By: "operator " + by,
	})
	if err != nil {
		return err
	}
	return c.show(env, []registry.EventSetAside{setAside})
}

func (c *EventsSetAsideCmd) show(env *Env, list []registry.EventSetAside) error {
	if c.JSON {
		shown := make([]shownSetAside, len(list))
		for i, a := range list {
			shown[i].EventSetAside = a
		}
		return json.NewEncoder(env.Stdout).Encode(shown)
	}
	for _, a := range list {
		_, err := fmt.Fprintf(env.Stdout, "position %d, %s of %s, is passed over by %s: %s (%s, %s)\n", a.Position,
			harmless(a.Type), harmless(a.Stream), cmp.Or(strings.Join(a.Projections, ", "), "all projections"),
			harmless(a.Reason), harmless(a.By), a.At.Format("2006-01-02 15:04:05"))
		if err != nil {
			return err
		}
	}
	return nil
}

// shownSetAside is an event that is set aside, without its id.
type shownSetAside struct {
	registry.EventSetAside
	EventID *struct{} `json:"eventId,omitempty"`
}

// AuditCmd is the group "annals audit".
type AuditCmd struct {
	Status    auditcli.StatusCmd    `cmd:"" help:"Show how far the trees of the audit log are signed and copied."`
	Verify    auditcli.VerifyCmd    `cmd:"" help:"Compare the whole log with the trees of the audit log and their checkpoints, or with a checkpoint that you kept. It ends with 1 if something is wrong."`
	Prove     auditcli.ProveCmd     `cmd:"" help:"Write the proofs of a send, a data point, a request or a deletion."`
	Export    auditcli.ExportCmd    `cmd:"" help:"Write a bundle with a whole tree, which annals-verify checks without a service."`
	RotateKey auditcli.RotateKeyCmd `cmd:"" name:"rotate-key" help:"Add a key to a tree, which signs its checkpoints from then on."`
	Show      auditcli.ShowCmd      `cmd:"" help:"Show what a request was shown, by its read record: each text as the log has it, or that it was erased, and whether who asked could read it then."`
}
