package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/build"
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

func TestCLI_HelpWithoutCommand(t *testing.T) {
	want := annals(t.Context(), nil, "", "--help")
	for _, args := range [][]string{{}, {"help"}} {
		if got := annals(t.Context(), nil, "", args...); got != want || got.code != exitOK || !strings.Contains(got.stdout, "serve") {
			t.Errorf("annals %v: %+v", args, got)
		}
	}
	if got := annals(t.Context(), nil, "", "help", "serve"); got.code != exitOK || !strings.Contains(got.stdout, "$ANNALS_DATA_DIR") {
		t.Errorf("annals help serve: %+v", got)
	}
}

func TestCLI_Version(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		got := annals(t.Context(), nil, "", args...)
		if got.code != exitOK || got.stdout != "annals "+build.Get().String()+"\n" || got.stderr != "" {
			t.Errorf("annals %v: %+v", args, got)
		}
	}
	if got := annals(t.Context(), nil, "", "version", "--json"); !strings.Contains(got.stdout, `"version": "`+build.Get().Version) {
		t.Errorf("as JSON: %+v", got)
	}
}

func TestCLI_NumberThatIsNone(t *testing.T) {
	for flag, name := range map[string]string{
		"--min-free-disk": "ANNALS_MIN_FREE_DISK", "--rate-limit-per-minute": "ANNALS_RATE_LIMIT_PER_MINUTE",
	} {
		got := annals(t.Context(), map[string]string{name: "lots"}, "", "serve")
		if got.code != exitUsage || !strings.Contains(got.stderr, flag+`: is "lots": want a whole number ($`+name+")") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestServe_RefusesABackup(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, datafolder.BackupList), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--data-dir", dir, "--api-addr", "127.0.0.1:0", "--console-addr", "127.0.0.1:0"}
	for _, command := range [][]string{
		append([]string{"serve"}, args...), append([]string{"rebuild", "all"}, args...),
		{"backup", filepath.Join(t.TempDir(), "copy"), "--data-dir", dir},
		{"node", "--insecure", "--addr", "127.0.0.1:0", "--data-dir", dir},
	} {
		got := annals(t.Context(), nil, "", command...)
		if got.code != exitFailed || !strings.Contains(got.stderr, "is a backup") || !strings.Contains(got.stderr, "annals restore") {
			t.Errorf("%v: %+v", command, got)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the backup was changed: %v, %v", left, err)
	}
}

// A misspelt variable is named with the setting that it resembles.
func TestServe_UnknownVariable(t *testing.T) {
	var stderr bytes.Buffer
	env := &Env{
		Getenv: func(string) string { return "" }, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &stderr,
		Environ: []string{"ANNALS_API_ADR=x", "ANNALS_MANAGEMENT_KEY=x"},
	}
	backup := t.TempDir() // so that the start ends after the settings
	if err := os.WriteFile(filepath.Join(backup, datafolder.BackupList), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runIn(t.Context(), []string{
		"serve", "--data-dir", backup, "--api-addr", "127.0.0.1:0", "--console-addr", "127.0.0.1:0",
	}, env)
	if text := stderr.String(); !strings.Contains(text, `"variable":"ANNALS_API_ADR","nearest":"ANNALS_API_ADDR"`) ||
		strings.Contains(text, "MANAGEMENT") || !strings.Contains(text, `"msg":"annals starts","version":"`) {
		t.Errorf("logged %s", text)
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
