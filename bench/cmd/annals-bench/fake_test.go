package main

import (
	"bytes"
	"testing"
)

// outcome is what a command did.
type outcome struct {
	code           int
	stdout, stderr string
}

// measured runs a command against the fake server.
func measured(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}
