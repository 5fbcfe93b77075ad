// Package mcp has the clients of npm and of Python connect to a running service, each once in each way.
package mcp
