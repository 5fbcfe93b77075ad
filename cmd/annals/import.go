package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/annals-project/annals/internal/client"
	"github.com/annals-project/annals/internal/importer"
)

// ImportCmd is "annals import".
type ImportCmd struct {
	Remote
	Points   string `name:"points" required:"" placeholder:"FILE" help:"JSON Lines file with a data point on each line; - is standard input."`
	State    string `name:"state" placeholder:"FILE" help:"File with the progress of the import; default FILE.progress (none for standard input)."`
	Parallel int    `name:"parallel" default:"4" help:"Batches in flight at once, 1 to 32."`
	Wait     bool   `name:"wait" help:"Wait until everything that was sent can be recalled."`
	JSON     bool   `name:"json" help:"Print the summary as one JSON value."`
}

// Validate is called by the parser.
func (c *ImportCmd) Validate() error {
	if c.Parallel < 1 || c.Parallel > 32 {
		return fmt.Errorf("--parallel is %d: want 1 to 32", c.Parallel)
	}
	return nil
}

// importSummary is what an import prints.
type importSummary struct {
	Points    int     `json:"points"`
	Sent      int     `json:"sent"`
	Unchanged int     `json:"unchanged"`
	Batches   int     `json:"batches"`
	Seconds   float64 `json:"seconds"`
	Project   int64   `json:"projectId"`
	// Status is that of the project, where the command waited for it.
	Status *client.IngestionStatus `json:"status,omitempty"`
}

// Run sends the file.
func (c *ImportCmd) Run(ctx context.Context, env *Env) error {
	to, err := c.client(client.Options{ConnectAttempts: 8})
	if err != nil {
		return err
	}
	in, size, closeInput, err := c.open(env)
	if err != nil {
		return err
	}
	defer closeInput()
	state, err := c.load(to.Base())
	if err != nil {
		return err
	}
	if _, _, err := to.Ready(ctx); err != nil {
		return err // fail at once; later the client waits for the server
	}
	began, before := time.Now(), state
	bar := newProgress(env.Stderr, time.Now, before.Offset)
	after, err := importer.Import{
		To: to, In: in, State: state, Parallel: c.Parallel,
		Moved: func(s importer.State) error {
			bar.show(step{done: s.Offset, total: size, items: s.Points - before.Points, what: "data points"})
			return c.save(s)
		},
	}.Run(ctx)
	bar.end()
	if err != nil {
		return c.stopped(ctx, after, err)
	}
	sum := importSummary{
		Points: after.Points, Sent: after.Points - before.Points, Unchanged: after.Unchanged - before.Unchanged,
		Batches: after.Batches - before.Batches, Seconds: time.Since(began).Seconds(), Project: after.ProjectID,
	}
	if c.Wait && after.LastIngestion != "" {
		status, err := c.wait(ctx, to, after.LastIngestion, env.Stderr)
		if err != nil {
			return err
		}
		sum.Status = &status
	}
	return c.report(env, sum)
}

// open opens the input and checks a regular file before anything is sent. size is 0 if unknown.
func (c *ImportCmd) open(env *Env) (in io.Reader, size int64, done func(), err error) {
	if c.Points == "-" {
		return env.Stdin, 0, func() {}, nil
	}
	f, err := os.Open(c.Points)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("open data points: %w", err)
	}
	done = func() { _ = f.Close() }
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return f, 0, done, err
	}
	count, err := importer.Check(f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return nil, 0, nil, fmt.Errorf("%s: %w", c.Points, err)
	}
	return f, count.Bytes, done, nil
}

// statePath is where the progress is kept; "" keeps none.
func (c *ImportCmd) statePath() string {
	if c.State == "" && c.Points != "-" {
		return c.Points + ".progress"
	}
	return c.State
}

func (c *ImportCmd) load(server string) (importer.State, error) {
	path := c.statePath()
	if path == "" {
		return importer.NewState(server), nil
	}
	state, ok, err := importer.LoadState(path)
	if err != nil {
		return state, err
	}
	if !ok {
		state = importer.NewState(server)
		return state, state.Save(path)
	}
	if state.Server != server {
		return state, fmt.Errorf(
			"%s is the progress of an import to %s: name another file with --state to send everything to %s", path,
			state.Server, server,
		)
	}
	return state, nil
}

func (c *ImportCmd) save(s importer.State) error {
	if path := c.statePath(); path != "" {
		return s.Save(path)
	}
	return nil
}

// stopped adds to the reason of a stop how to go on.
func (c *ImportCmd) stopped(ctx context.Context, s importer.State, err error) error {
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	again := "run the same command again to go on"
	if c.statePath() == "" {
		again = "what was sent already is found unchanged when it is sent again"
	}
	return fmt.Errorf("import stopped after %s data points: %w; %s", humanize.Comma(int64(s.Points)), err, again)
}

func (c *ImportCmd) wait(
	ctx context.Context, to *client.Client, ingestion string, out io.Writer,
) (client.IngestionStatus, error) {
	bar := newProgress(out, time.Now, 0)
	status, err := to.WaitSettled(ctx, ingestion, func(s client.IngestionStatus) {
		bar.show(step{plain: "waiting for " + english.Plural(s.Readiness.Raw+s.Readiness.Comprehension, "send", "sends")})
	})
	bar.end()
	if err != nil {
		return status, fmt.Errorf("everything was sent, but waiting for it failed: %w", err)
	}
	return status, nil
}

func (c *ImportCmd) report(env *Env, s importSummary) error {
	failed := s.Status != nil && s.Status.Readiness.Failed > 0
	if c.JSON {
		if err := printJSON(env.Stdout, s); err != nil {
			return err
		}
	} else {
		rate := int64(float64(s.Sent) / max(s.Seconds, 0.001))
		_, _ = fmt.Fprintf(env.Stdout, "%s sent in %s in %.1f s (%s/s), %s of them unchanged; %s in all\n",
			english.Plural(s.Sent, "data point", "data points"), english.Plural(s.Batches, "batch", "batches"), s.Seconds,
			humanize.Comma(rate), humanize.Comma(int64(s.Unchanged)), humanize.Comma(int64(s.Points)))
		if s.Status != nil && !failed {
			_, _ = fmt.Fprintln(env.Stdout, "everything can be recalled")
		}
	}
	if failed {
		return fmt.Errorf("%s of the project stopped: annals failed lists them",
			english.Plural(s.Status.Readiness.Failed, "send", "sends"))
	}
	return nil
}
