package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// outcome is the result of a run of the command line.
type outcome struct {
	code           int
	stdout, stderr string
}

// annals runs the command line with an environment of its own.
func annals(ctx context.Context, env map[string]string, stdin string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, func(name string) string { return env[name] }, strings.NewReader(stdin), &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

func TestHelp_EverySettingWithItsVariable(t *testing.T) {
	got := annals(t.Context(), nil, "", "serve", "--help")
	if got.code != exitOK {
		t.Fatalf("exit code %d: %s", got.code, got.stderr)
	}
	for _, name := range []string{
		"DATA_DIR", "API_ADDR", "CONSOLE_ADDR", "API_URL", "CONSOLE_URL", "AUTH_URL", "EVENTSTORE", "POSTGRES",
		"INDEX", "PIPELINE", "HASH_KEY", "TLS_CERT", "TLS_KEY", "LOG_LEVEL",
	} {
		if !strings.Contains(got.stdout, "$ANNALS_"+name) {
			t.Errorf("help lacks ANNALS_%s", name)
		}
	}
}

func TestCLI_WrongUse(t *testing.T) {
	for name, args := range map[string][]string{
		"no command":      {},
		"unknown command": {"remember"},
		"unknown flag":    {"serve", "--loud"},
		"wrong setting":   {"serve", "--pipeline=maybe"},
	} {
		t.Run(name, func(t *testing.T) {
			got := annals(t.Context(), nil, "", args...)
			if got.code != exitUsage || strings.Count(got.stderr, "\n") != 1 || got.stdout != "" {
				t.Fatalf("got %+v, want exit code %d and one line", got, exitUsage)
			}
		})
	}
}

func TestCLI_EnvironmentWithoutFlag(t *testing.T) {
	env := map[string]string{"ANNALS_PIPELINE": "maybe"}
	if got := annals(t.Context(), env, "", "serve"); !strings.Contains(got.stderr, `ANNALS_PIPELINE is "maybe"`) {
		t.Errorf("the variable was not read: %s", got.stderr)
	}
	if got := annals(
		t.Context(), env, "", "serve", "--pipeline=off", "--log-level=loud",
	); strings.Contains(got.stderr, "PIPELINE") {
		t.Errorf("the flag did not win over the variable: %s", got.stderr)
	}
}
