// Package mcp serves the Model Context Protocol: agents recall and remember by tools that call the API in the process.
package mcp

import (
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// instructions tell a model how to use the tools.
const instructions = `Annals keeps what was said and when. Recall before you answer a question about the past. ` +
	`Look at the dates: a later memory may replace an earlier one. Cite the sources of what you say.`

// newServer makes a server of tools.
func newServer(version string) *sdk.Server {
	return sdk.NewServer(&sdk.Implementation{Name: "memory", Title: "Annals", Version: version},
		&sdk.ServerOptions{Instructions: instructions})
}

var _ = newServer
