package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/recallview"
	"github.com/annals-project/annals/internal/mcpbridge"
)

// Remote names the server that a command calls, and the key. The credentials file of the data
// folder completes what neither a flag nor a variable sets.
type Remote struct {
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder; its credentials.env holds the address and the keys."`
	URL     string `name:"url" setting:"ANNALS_API_URL" help:"Address of the server."`
	Key     string `name:"key" setting:"ANNALS_PROJECT_KEY" help:"Project key; use the variable, since other users can see the flags of a process."`
}

// defaultURL is the address of a server that was started without settings, on the folder defaultDir.
const (
	defaultURL = "http://127.0.0.1:8080"
	defaultDir = "data"
)

// fill completes the flags from the data folder. The address stays empty if another folder than the default is named
// and has none: what listens at the default address is then another service.
func (r *Remote) fill() (map[string]string, error) {
	file, err := datafolder.ReadCredentials(r.DataDir)
	if err != nil {
		return nil, err
	}
	r.URL = cmp.Or(r.URL, file["ANNALS_API_URL"])
	if r.URL == "" && filepath.Clean(r.DataDir) == defaultDir {
		r.URL = defaultURL
	}
	r.Key = cmp.Or(r.Key, file["ANNALS_PROJECT_KEY"])
	return file, nil
}

// cliOptions are those of every command: who waits at a terminal is shown after some attempts that a server is away or
// under load.
var cliOptions = []client.Option{
	client.WithUserAgent("annals-cli"), client.WithMaxAttempts(6), client.WithConnectWait(0),
}

// client makes a client with the project key.
func (r *Remote) client(options ...client.Option) (*client.Client, error) {
	if _, err := r.fill(); err != nil {
		return nil, err
	}
	if r.Key == "" {
		return nil, fmt.Errorf(
			"no project key: set ANNALS_PROJECT_KEY, or name with --data-dir the data folder of the server (no key in %s)",
			r.DataDir,
		)
	}
	if r.URL == "" {
		return nil, r.noServer()
	}
	c, err := client.New(r.URL, r.Key, slices.Concat(cliOptions, options)...)
	if err != nil {
		return nil, fmt.Errorf("address of the server: %w", err)
	}
	return c, nil
}

// noServer is the error for a folder that names no server.
func (r *Remote) noServer() error {
	return fmt.Errorf("no %s in %s: name the data folder of a server with --data-dir, or its address with --url",
		datafolder.CredentialsFile, r.DataDir)
}

// printJSON writes one JSON value and nothing else.
func printJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// summary is the result of a command whose failure is known only after all was done.
type summary interface {
	Print(out io.Writer)
	Err() error
}

// printSummary prints a summary, as text or as one JSON value, and returns its failure.
func printSummary(out io.Writer, s summary, asJSON bool) error {
	if !asJSON {
		s.Print(out)
	} else if err := printJSON(out, s); err != nil {
		return err
	}
	return s.Err()
}

// RecallCmd is "annals recall".
type RecallCmd struct {
	operatorapi.WhoFlags
	Remote
	OrgFlag
	Query         string   `arg:"" help:"The question."`
	Identity      string   `name:"identity" required:"" help:"Customer id to answer as."`
	Limit         int      `name:"limit" help:"Most results, 1 to 200; default 100."`
	Level         string   `name:"level" help:"Budget: low, medium, high or extra-high."`
	MaxTokens     int      `name:"max-tokens" help:"Budget in tokens, instead of a level."`
	At            string   `name:"at" placeholder:"TIME" help:"Answer as of this time (ISO 8601); \"yesterday\" is a day at its offset, default UTC."`
	From          string   `name:"from" placeholder:"TIME" help:"Only what occurred at or after this time."`
	To            string   `name:"to" placeholder:"TIME" help:"Only what occurred at or before this time; a date alone is that UTC day to its end."`
	Chronological bool     `name:"chronological" help:"Oldest first, instead of best first."`
	Full          bool     `name:"full" help:"Print long texts whole, not only their lines with words of the question."`
	Explain       bool     `name:"explain" help:"Show why each result is there; asks the server that runs on the data folder, as its operator."`
	Missing       []string `name:"missing" sep:"none" placeholder:"SOURCE_ID" help:"With --explain: show where recall lost this source; may be repeated."`
	Project       string   `name:"project" placeholder:"SLUG" help:"With --explain: project to ask; default that of the key."`
	JSON          bool     `name:"json" help:"Print the answer as one JSON value."`
}

// Validate is called by the parser.
func (c *RecallCmd) Validate() error {
	if !c.Explain && (len(c.Missing) > 0 || c.Project != "" || c.Org != "") {
		return errors.New("--missing, --project and --org need --explain")
	}
	return nil
}

// Run sends the query.
func (c *RecallCmd) Run(ctx context.Context, env *Env) error {
	q := client.RecallRequest{
		Query: c.Query, Identity: c.Identity, Limit: c.Limit, Level: c.Level, MaxTokens: c.MaxTokens,
		QueryTimestamp: c.At, OccurredFrom: c.From, OccurredTo: c.To,
	}
	if c.Chronological {
		q.Sort = "chronological"
	}
	if c.Explain {
		return c.explain(ctx, env, q)
	}
	to, err := c.client()
	if err != nil {
		return err
	}
	page, err := to.Recall(ctx, q)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, page)
	}
	return recallview.PrintResponse(env.Stdout, *page, c.Query, c.Full)
}

// explain explains the query through the socket of the data folder.
func (c *RecallCmd) explain(ctx context.Context, env *Env, q client.RecallRequest) error {
	if c.Project == "" {
		if _, err := c.client(); err != nil { // finds the key
			return err
		}
	}
	in, err := operatorapi.NewExplainRequest(q, c.Key, c.Missing)
	if err != nil {
		return err
	}
	in.Organization, in.Project = c.Org, c.Project
	explained, err := operatorapi.ExplainRecall.Call(ctx, operatorapi.Dial(c.DataDir), in)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, explained)
	}
	return recallview.PrintExplanation(env.Stdout, explained)
}

// MCPCmd is "annals mcp".
type MCPCmd struct {
	Remote
	ConsoleURL string  `name:"console-url" setting:"ANNALS_CONSOLE_URL" help:"Address of the console, which serves /mcp."`
	Identity   *string `help:"The one identity that all calls act as. Without it the model names one in each call."`
}

// Run carries messages until the client ends.
func (c *MCPCmd) Run(ctx context.Context, env *Env) error {
	file, err := c.fill()
	if err != nil {
		return err
	}
	if c.Key == "" {
		return errors.New("no project key: set ANNALS_PROJECT_KEY, or name the data folder of the server with --data-dir")
	}
	url := cmp.Or(c.ConsoleURL, file["ANNALS_CONSOLE_URL"])
	if url == "" {
		if filepath.Clean(c.DataDir) != defaultDir {
			return c.noServer()
		}
		url = "http://127.0.0.1:8081"
	}
	bridge := mcpbridge.Bridge{URL: url + "/mcp", Key: c.Key, HTTP: http.DefaultClient}
	if c.Identity != nil {
		if bridge.Identity = *c.Identity; strings.TrimSpace(bridge.Identity) == "" {
			return errors.New("--identity is empty: name the identity that the calls act as, or leave it out")
		}
	}
	return bridge.Run(ctx, env.Stdin, env.Stdout)
}
