package main

import (
	"fmt"

	"github.com/annals-project/annals/cmd/annals/internal/grammar"
)

// CompletionCmd is "annals completion".
type CompletionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: bash, zsh or fish."`
}

// Run prints the script of the shell.
func (c *CompletionCmd) Run(env *Env) error {
	if _, err := fmt.Fprint(env.Stdout, grammar.Shells[c.Shell]); err != nil {
		return fmt.Errorf("write the script: %w", err)
	}
	return nil
}

// CompleteCmd is "annals complete", which the scripts of shells call.
type CompleteCmd struct {
	Words []string `arg:"" optional:"" help:"Words after the name of the program; the last one is completed."`
}

// Run prints a line for each candidate.
func (c *CompleteCmd) Run(env *Env) error {
	for _, candidate := range grammar.Complete(env.Model, c.Words) {
		if _, err := fmt.Fprintln(env.Stdout, candidate); err != nil {
			return fmt.Errorf("write candidates: %w", err)
		}
	}
	return nil
}
