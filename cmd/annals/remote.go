package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
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
