// Package mcp has the clients of npm connect to a running service, each once.
package mcp
