// Command annals is the memory service and its command line in one binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata"

	"github.com/alecthomas/kong"

	"github.com/annals-project/annals/cmd/annals/internal/grammar"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/terminal"
	"github.com/annals-project/annals/cmd/annals/internal/transfer"
	"github.com/annals-project/annals/internal/amounts"
	"github.com/annals-project/annals/internal/build"
)

func main() {
	os.Exit(run(untilStop(), os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// The exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	// exitPartly is the code of an import that sent all but the files that it skipped, and of an erasure that found
	// nothing of the person.
	exitPartly = 3
)

// CLI is the grammar of the command line.
type CLI struct {
	Serve       ServeCmd       `cmd:"" help:"Run the service: API, projections and pipeline in one process."`
	Node        NodeCmd        `cmd:"" help:"Run the event store alone, for EventStoreDB clients."`
	Import      ImportCmd      `cmd:"" help:"Send files, or a file of data points, in batches; a second run continues where the first one stopped."`
	Export      ExportCmd      `cmd:"" help:"Write the data points of a project to a file that import takes; a second run continues where the first one stopped."`
	Estimate    EstimateCmd    `cmd:"" help:"Show what files would become as data points and what they would cost; sends nothing to memory."`
	Recall      RecallCmd      `cmd:"" help:"Ask a question and print what is remembered, with its sources."`
	MCP         MCPCmd         `cmd:"" name:"mcp" help:"Let a local client of the Model Context Protocol, on standard input and output, use the server with a project key."`
	Status      StatusCmd      `cmd:"" help:"Show whether the server is ready, or the progress of one send."`
	Healthcheck HealthcheckCmd `cmd:"" help:"Ask the service of this machine whether it runs, for container engines."`
	Doctor      DoctorCmd      `cmd:"" help:"Examine the installation, running or not, and say what to do about each thing that is wrong."`
	Failed      FailedCmd      `cmd:"" help:"List the sends that stopped, with the reason, and queue them again with --retry."`
	Backup      BackupCmd      `cmd:"" help:"Back up the log and the keys into a folder, while the server runs or not."`
	Restore     RestoreCmd     `cmd:"" help:"Create a data folder from a backup."`
	Erase       EraseCmd       `cmd:"" help:"Show what waits to be erased, or erase it now."`
	Events      EventsCmd      `cmd:"" help:"Read the event log, as the person who runs the server."`
	Audit       AuditCmd       `cmd:"" help:"Verify the log, and prove to others what happened."`
	Rebuild     RebuildCmd     `cmd:"" help:"Build a projection from the log in a shadow, and switch over to it."`
	Org         OrgCmd         `cmd:"" help:"List and create organizations, and set their plan, credits, spend cap and management key."`
	Project     ProjectCmd     `cmd:"" help:"List, create and archive projects, and set their caps."`
	Key         KeyCmd         `cmd:"" help:"List, create, reveal and revoke the keys of a project."`
	Person      PersonCmd      `cmd:"" help:"Let a person sign in to the console."`
	SigningKeys SigningKeysCmd `cmd:"" help:"Replace the keys that sign tokens of agents."`
	SealKey     SealKeyCmd     `cmd:"" name:"seal-key" help:"Name the keys that seal secrets in the database, and go on without one that is lost."`
	Embeddings  EmbeddingsCmd  `cmd:"" help:"Install the built-in embedding model, and see how far texts are embedded."`
	Webhook     WebhookCmd     `cmd:"" help:"Let events of other systems become data points: create webhooks, and change, pause, try and delete them."`

	Completion CompletionCmd `cmd:"" help:"Print the script by which a shell completes commands and flags."`
	Complete   CompleteCmd   `cmd:"" hidden:"" help:"Print what a word may become."`

	Version VersionCmd       `cmd:"" help:"Print the version, and what it was built from."`
	Short   kong.VersionFlag `name:"version" help:"Print the version."`
}

// Env is what a command uses of its process.
type Env struct {
	Getenv func(string) string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Environ are the variables of the environment, for those that no setting reads. Known are those that one reads.
	Environ, Known []string
	// Model is the grammar, for the completion of shells.
	Model *kong.Application
	// Unread is why settings could not be read, each on a line. Only doctor runs with such.
	Unread error
	// Now is the clock of a service. Nil is the clock of the machine.
	Now func() time.Time
}

// terminal is where the command asks and shows progress.
func (e *Env) terminal() terminal.Streams { return terminal.Streams{In: e.Stdin, Out: e.Stderr} }

// exited carries the code of an exit that the parser requested, such as after --help.
type exited int

// run parses args and runs one command. It returns the exit code and never exits; a failure is one line on stderr.
func run(
	ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer,
) (code int) {
	return runIn(ctx, args, &Env{Getenv: getenv, Stdin: stdin, Stdout: stdout, Stderr: stderr, Environ: os.Environ()})
}

// runIn is run with everything that a command may touch.
func runIn(ctx context.Context, args []string, env *Env) (code int) {
	getenv, stdout, stderr := env.Getenv, env.Stdout, env.Stderr
	defer func() {
		if r := recover(); r != nil {
			exit, ok := r.(exited)
			if !ok {
				panic(r)
			}
			code = int(exit)
		}
	}()
	var cli CLI
	switch { // no command is asked for: print the help
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "help":
		args = append(args[1:len(args):len(args)], "--help")
	}
	if len(args) > 0 && args[0] == "bench" {
		_, _ = fmt.Fprintln(stderr, "annals: the benchmarks are the program annals-bench (make bin/annals-bench builds it)")
		return exitUsage
	}
	unread := grammar.Unread{}
	parser, err := kong.New(&cli,
		kong.Name("annals"),
		kong.Description("A memory service: text in, memory derived, recalled with its sources."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exited(code)) }),
		grammar.Settled(getenv, unread),
		kong.Vars{"version": "annals " + build.Get().String()},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.BindTo(stdout, (*io.Writer)(nil)),
		kong.Bind(env),
	)
	if err != nil {
		return printError(stderr, err)
	}
	grammar.ShowExamples(parser.Model, examples)
	grammar.HideSettings(parser.Model, "rebuild", "ANNALS_DATA_DIR")
	grammar.HideSettings(parser.Model, "doctor", "ANNALS_DATA_DIR")
	command, err := parser.Parse(amounts.JoinNegative(args))
	env.Unread = unread.Err()
	if err == nil && command.Command() != "doctor" {
		err = env.Unread
	} else if err != nil {
		err = errors.Join(env.Unread, err)
	}
	if err != nil {
		return printUsage(stderr, err)
	}
	env.Known, env.Model = grammar.Settings(parser.Model), parser.Model
	command.BindTo(operatorapi.WithWho(ctx, whoOf(command)), (*context.Context)(nil))
	if err := command.Run(); err != nil {
		return printError(stderr, err)
	}
	return exitOK
}

// whoOf reads the flags of a command that name who calls, and why.
func whoOf(command *kong.Context) (who operatorapi.Who) {
	for _, flag := range command.Flags() {
		switch text, _ := flag.Target.Interface().(string); flag.Name {
		case "as":
			who.As = text
		case "reason":
			who.Reason = text
		}
	}
	return who
}

// printUsage writes a line for each thing that is wrong with the arguments and the settings, and returns the exit code.
func printUsage(stderr io.Writer, err error) int {
	text := strings.ReplaceAll(err.Error(), "\n", "\nannals: ")
	_, _ = fmt.Fprintf(stderr, "annals: %s (annals --help lists the commands, annals serve --help the settings)\n", text)
	return exitUsage
}

// printError writes an error as one line and returns the exit code.
func printError(stderr io.Writer, err error) int {
	line := strings.Join(strings.Fields(err.Error()), " ")
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		line += " (raise ulimit -n: 4,096 or more is advised)"
	}
	_, _ = fmt.Fprintf(stderr, "annals: %s\n", line)
	return exitCode(err)
}

func exitCode(err error) int {
	if errors.Is(err, terminal.ErrNone) {
		return exitUsage
	}
	_, skipped := errors.AsType[*transfer.SkippedError](err)
	if _, unknown := errors.AsType[*unknownPersonError](err); skipped || unknown {
		return exitPartly
	}
	return exitFailed
}

// VersionCmd is "annals version".
type VersionCmd struct {
	JSON bool `name:"json" help:"Print it as one JSON value."`
}

// Run prints the version.
func (c *VersionCmd) Run(env *Env) error {
	if c.JSON {
		return printJSON(env.Stdout, build.Get())
	}
	_, err := fmt.Fprintln(env.Stdout, "annals", build.Get())
	return err
}

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

// untilStop returns a context that the first SIGINT, SIGTERM or SIGHUP ends, which requests an orderly stop. After
// that, SIGINT or SIGTERM ends the process at once. SIGHUP does not: when a terminal is closed, both the shell and the
// system send it. Under nohup it is ignored, and stays so.
func untilStop() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		ctx, _ = signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	context.AfterFunc(ctx, stop)
	return ctx
}

// outliveOutput has writes to a standard output or error that nobody reads any more fail, as after its terminal was
// closed. By default they end the process at once.
func outliveOutput() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
