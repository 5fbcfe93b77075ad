package main

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/annals-project/annals/internal/mcpbridge"
)

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
