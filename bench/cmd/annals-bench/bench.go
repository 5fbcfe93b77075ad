package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/annals-project/annals/bench"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/bench/hostile"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/internal/bench/score"
)

// BenchCmd is "annals-bench".
type BenchCmd struct {
	Recall struct {
		Locomo LocomoCmd `cmd:"" help:"Score recall on dialogues of two people whose questions name the turns that answer them."`
		Beam   BeamCmd   `cmd:"" help:"Score recall on chats with an assistant whose questions name the messages that answer them."`
	} `cmd:"" help:"Measure how well recall finds what it should."`
	Answers   AnswersCmd   `cmd:"" help:"Record what questions answer, and compare two recordings."`
	Engine    EngineCmd    `cmd:"" help:"Measure the search engine alone, beside SQLite with FTS5 on the same texts."`
	Load      LoadCmd      `cmd:"" help:"Measure speed under load, against the budgets of the design."`
	Sustained SustainedCmd `cmd:"" help:"Measure a steady load and an overload against the budgets of the design."`
	Needles   NeedlesCmd   `cmd:"" help:"Measure whether recall finds the one of many texts that a question names by a detail."`
	Directory DirectoryCmd `cmd:"" help:"Measure what many identities and rules cost, against the budgets of the design."`
	Audit     AuditCmd     `cmd:"" help:"Measure what the audit log and proved reads cost."`
	Hostile   HostileCmd   `cmd:"" help:"Measure what a neighbour notices while one tenant misuses the service."`
	Pair      PairCmd      `cmd:"" help:"Compare the service of the working tree with those of other commits."`
	Size      SizeCmd      `cmd:"" help:"Measure recall, memory and start as the store grows, against the budgets of the design."`
}

// MeasuredServer names the server that a benchmark measures.
type MeasuredServer struct {
	Remote
	ManagementKey string `name:"management-key" env:"ANNALS_MANAGEMENT_KEY" help:"Management key, which creates the projects; use the variable."`
	Own           bool   `name:"own" help:"Start a separate server on a new folder, and remove it afterwards."`
}

func (s *MeasuredServer) config(env *Env, wait time.Duration) (bench.Config, error) {
	program, err := env.Service()
	cfg := bench.Config{DataDir: s.DataDir, Wait: wait, Progress: env.Stderr, Program: program}
	if s.Own {
		return cfg, err
	}
	cfg.Manager, err = s.management(s.ManagementKey)
	return cfg, err
}

// RowFlags set how long a benchmark waits and how its rows are printed.
type RowFlags struct {
	Wait   time.Duration `name:"wait" default:"15m" help:"Longest wait until everything that was sent can be recalled."`
	Strict bool          `name:"strict" help:"Fail if a bound is missed."`
	JSON   bool          `name:"json" help:"Print the rows as one JSON value."`
}

// print prints the rows. With --strict a missed bound is an error.
func (f *RowFlags) print(w io.Writer, rows []load.Row) error {
	var err error
	if f.JSON {
		err = printJSON(w, map[string]any{"rows": rows})
	} else {
		err = load.Table(w, rows)
	}
	if err != nil || !f.Strict {
		return err
	}
	return load.Missed(rows)
}

// measure runs one benchmark and prints its rows.
func measure[O any](
	ctx context.Context, env *Env, server *MeasuredServer, rows *RowFlags, opts O,
	run func(context.Context, bench.Config, O) ([]load.Row, error),
) error {
	cfg, err := server.config(env, rows.Wait)
	if err != nil {
		return err
	}
	measured, err := run(ctx, cfg, opts)
	if err != nil {
		return err
	}
	return rows.print(env.Stdout, measured)
}

// within refuses the value of a flag that is out of its bounds.
func within(flag string, value, least, most int) error {
	if value < least || value > most {
		return fmt.Errorf("--%s is %d: want %d to %d", flag, value, least, most)
	}
	return nil
}

// LoadCmd is "annals-bench load". It writes to projects that it creates, and does not remove them.
type LoadCmd struct {
	MeasuredServer
	LoadFlags
	RowFlags
}

// LoadFlags are the sizes of "annals-bench load", the same fields as bench.LoadOptions.
type LoadFlags struct {
	Bare     string        `name:"bare" placeholder:"FILE" help:"Output of go test -bench of the parts below, for the ratios."`
	Clients  int           `name:"clients" default:"32" help:"Clients that send at once, 1 to 256."`
	For      time.Duration `name:"for" default:"10s" help:"How long a load lasts, at most 5m."`
	Batches  int           `name:"batches" default:"20" help:"Batches of 1,000 short texts, 1 to 1,000."`
	Passages int           `name:"passages" default:"100000" help:"Texts to recall from, in thousands: 1,000 to 1,000,000."`
	Queries  int           `name:"queries" default:"500" help:"Recalls to measure, 1 to 100,000."`
	Import   int           `name:"import" default:"100000" help:"Texts to import beside single sends, in thousands, at most 1,000,000; 0 leaves that out."`
}

// Validate is called by the parser.
func (c *LoadCmd) Validate() error {
	errs := []error{
		within("clients", c.Clients, 1, 256), within("batches", c.Batches, 1, 1000),
		within("passages", c.Passages, 1000, 1_000_000), within("queries", c.Queries, 1, 100_000),
		within("import", c.Import, 0, 1_000_000),
	}
	if c.For <= 0 || c.For > 5*time.Minute {
		errs = append(errs, fmt.Errorf("--for is %v: want at most 5m", c.For))
	}
	return errors.Join(errs...)
}

// Run runs the benchmark.
func (c *LoadCmd) Run(ctx context.Context, env *Env) error {
	return measure(ctx, env, &c.MeasuredServer, &c.RowFlags, bench.LoadOptions(c.LoadFlags), bench.Load)
}

// DirectoryCmd is "annals-bench directory": what many identities and rules cost. It writes to
// projects that it creates, and does not remove them.
type DirectoryCmd struct {
	MeasuredServer
	DirectoryFlags
	RowFlags
}

// DirectoryFlags are the sizes of "annals-bench directory", the same fields as bench.DirectoryOptions.
type DirectoryFlags struct {
	Identities int `name:"identities" default:"100000" help:"Identities of the directory, 1,000 to 1,000,000."`
	Rules      int `name:"rules" default:"200" help:"Audiences by rules, 1 to 1,000."`
	Passages   int `name:"passages" default:"20000" help:"Texts to recall from, in thousands: 1,000 to 1,000,000."`
	Puts       int `name:"puts" default:"1000" help:"Identities to put one by one, 1 to 100,000."`
	Queries    int `name:"queries" default:"500" help:"Recalls to measure, 1 to 100,000."`
}

// Validate is called by the parser.
func (c *DirectoryCmd) Validate() error {
	return errors.Join(within("identities", c.Identities, 1000, 1_000_000), within("rules", c.Rules, 1, 1000),
		within("passages", c.Passages, 1000, 1_000_000), within("puts", c.Puts, 1, 100_000),
		within("queries", c.Queries, 1, 100_000))
}

// Run runs the benchmark.
func (c *DirectoryCmd) Run(ctx context.Context, env *Env) error {
	return measure(ctx, env, &c.MeasuredServer, &c.RowFlags, bench.DirectoryOptions(c.DirectoryFlags), bench.Directory)
}

// SustainedCmd is "annals-bench sustained". It writes to projects that it creates, and does not
// remove them.
type SustainedCmd struct {
	MeasuredServer
	Program string `name:"program" type:"existingfile" placeholder:"FILE" help:"With --own: annals to measure."`
	SustainedFlags
	RowFlags
}

// SustainedFlags are the loads of "annals-bench sustained", the same fields as bench.SustainedOptions.
type SustainedFlags struct {
	Rate     int           `name:"rate" default:"1000" help:"Single sends a second of the steady load, 1 to 20,000."`
	Over     int           `name:"over" default:"0" help:"Sends a second of an overload, at most 20,000; 0: none."`
	For      time.Duration `name:"for" default:"1m" help:"How long each load lasts, at most 1h."`
	Projects int           `name:"projects" default:"1" help:"Projects that receive the sends in turn, 1 to 1,000."`
	UnderWay int           `name:"under-way" default:"512" help:"Sends in flight at most, 1 to 4,096."`
	Burst    time.Duration `name:"burst" default:"5s" help:"Length of a burst at full speed before the loads; 0: none."`
	Passages int           `name:"passages" default:"10000" help:"Texts for the recall part, at most 100,000; 0: none."`
	Rebuild  bool          `name:"rebuild" default:"true" negatable:"" help:"With --own: rebuild all projections last."`
}

// Validate is called by the parser.
func (c *SustainedCmd) Validate() error {
	errs := []error{
		within("rate", c.Rate, 1, 20_000), within("over", c.Over, 0, 20_000), within("projects", c.Projects, 1, 1000),
		within("under-way", c.UnderWay, 1, 4096), within("passages", c.Passages, 0, 100_000),
	}
	if c.For <= 0 || c.For > time.Hour {
		errs = append(errs, fmt.Errorf("--for is %v: want at most 1h", c.For))
	}
	if c.Burst < 0 || c.Burst > 5*time.Minute {
		errs = append(errs, fmt.Errorf("--burst is %v: want 0 to 5m", c.Burst))
	}
	return errors.Join(errs...)
}

// Run runs the benchmark.
func (c *SustainedCmd) Run(ctx context.Context, env *Env) error {
	run := func(ctx context.Context, cfg bench.Config, opts bench.SustainedOptions) ([]load.Row, error) {
		cfg.Program = cmp.Or(c.Program, cfg.Program)
		return bench.Sustained(ctx, cfg, opts)
	}
	return measure(ctx, env, &c.MeasuredServer, &c.RowFlags, bench.SustainedOptions(c.SustainedFlags), run)
}

// SizeCmd is "annals-bench size": how recall, memory and start of a separate server hold up as its
// store grows.
type SizeCmd struct {
	Sizes   []int         `name:"passages" default:"100000,1000000" help:"How many texts, one size after the other, growing, each 1,000 to 2,000,000."`
	Queries int           `name:"queries" default:"500" help:"Recalls to measure, 1 to 100,000."`
	Model   string        `name:"model" help:"Embed the texts too, by the built-in model in this file or folder, as annals embeddings install takes it."`
	Wait    time.Duration `name:"wait" default:"60m" help:"Longest wait until everything that was written can be recalled."`
	Strict  bool          `name:"strict" help:"Fail if a bound is missed."`
	JSON    bool          `name:"json" help:"Print the rows as one JSON value."`
}

// Validate is called by the parser.
func (c *SizeCmd) Validate() error {
	last := 999
	for _, size := range c.Sizes {
		if size <= last || size > 2_000_000 {
			return fmt.Errorf("--passages has %d: want growing numbers from 1000 to 2000000", size)
		}
		last = size
	}
	return within("queries", c.Queries, 1, 100_000)
}

// Run runs the benchmark.
func (c *SizeCmd) Run(ctx context.Context, env *Env) error {
	opts := bench.SizeOptions{Passages: c.Sizes, Queries: c.Queries, Model: c.Model}
	rows := &RowFlags{Wait: c.Wait, Strict: c.Strict, JSON: c.JSON}
	return measure(ctx, env, &MeasuredServer{Own: true}, rows, opts, bench.Size)
}

// HostileCmd is "annals-bench hostile". Every attack has a separate server on a new folder.
type HostileCmd struct {
	hostile.Sizes `embed:""`

	Attacks   []string      `name:"attacks" placeholder:"NAME" help:"Attacks to run, by name; default all."`
	After     time.Duration `name:"after" default:"10s" help:"How long the neighbour continues after an attack."`
	Longest   time.Duration `name:"longest" default:"15m" help:"Longest time that an attack or its preparation may take."`
	StopAtMiB int64         `name:"stop-at" default:"3072" help:"MiB of memory at which a server is killed."`
	Check     bool          `name:"check" help:"Fail if a bound is missed."`
	Flags     []string      `name:"serve-flag" placeholder:"--FLAG=VALUE" help:"Additional flags of the servers."`
}

// Validate is called by the parser.
func (c *HostileCmd) Validate() error {
	for _, name := range c.Attacks {
		if !slices.Contains(bench.HostileNames(), name) {
			return fmt.Errorf("--attacks has %q, which is not an attack", name)
		}
	}
	if c.After < 0 || c.After > 10*time.Minute || c.Longest <= 0 || c.Longest > time.Hour || c.StopAtMiB < 1 {
		return errors.New("want --after of at most 10m, --longest of at most 1h, and --stop-at of at least 1")
	}
	return c.Sizes.Validate()
}

// Run runs one attack after the other.
func (c *HostileCmd) Run(ctx context.Context, env *Env) error {
	program, err := env.Service()
	if err != nil {
		return err
	}
	opts := bench.HostileOptions{
		Program: program,
		Sizes:   c.Sizes, After: c.After, Longest: c.Longest, StopAt: c.StopAtMiB << 20, Flags: c.Flags, Progress: env.Stderr,
	}
	missed, err := bench.HostileAll(ctx, opts, c.Attacks, env.Stdout)
	if err != nil {
		return err
	}
	if c.Check && len(missed) > 0 {
		return fmt.Errorf("bounds are missed: %s", strings.Join(missed, ", "))
	}
	return nil
}

// AuditCmd is "annals-bench audit": what the audit log costs. It starts a separate server.
type AuditCmd struct {
	bench.AuditOptions
	RowFlags
}

// Run runs the benchmark.
func (c *AuditCmd) Run(ctx context.Context, env *Env) error {
	return measure(ctx, env, &MeasuredServer{Own: true}, &c.RowFlags, c.AuditOptions, bench.Audit)
}

// NeedlesCmd is "annals-bench needles". It writes to projects that it creates, and does not remove them.
type NeedlesCmd struct {
	MeasuredServer
	bench.NeedlesOptions
	MinR1 float64       `name:"min-r1" help:"Fail if fewer questions than this share have their text as the first result."`
	Wait  time.Duration `name:"wait" default:"15m" help:"Longest wait until everything that was sent can be recalled."`
	JSON  bool          `name:"json" help:"Print the report as one JSON value."`
}

// Run measures and prints. It fails if the bound is missed.
func (c *NeedlesCmd) Run(ctx context.Context, env *Env) error {
	cfg, err := c.config(env, c.Wait)
	if err != nil {
		return err
	}
	report, err := bench.Needles(ctx, cfg, c.NeedlesOptions)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(env.Stdout, report)
	} else {
		err = report.Table(env.Stdout)
	}
	return errors.Join(err, report.Check(c.MinR1))
}

// LocomoCmd is "annals-bench recall locomo".
type LocomoCmd struct {
	Score ScoreFlags `embed:""`
	Files []string   `arg:"" name:"file" help:"Dialogues of two people, one JSON file each."`
}

// Run measures and prints. It fails if a bound that was set is missed.
func (c *LocomoCmd) Run(ctx context.Context, env *Env) error {
	return c.Score.run(ctx, env, c.Files, bench.ReadLocomo)
}

// BeamCmd is "annals-bench recall beam".
type BeamCmd struct {
	Score ScoreFlags `embed:""`
	Dirs  []string   `arg:"" name:"dir" help:"Chats with an assistant, a folder with chat.json and probing_questions.json each."`
}

// Run measures and prints. It fails if a bound that was set is missed.
func (c *BeamCmd) Run(ctx context.Context, env *Env) error {
	return c.Score.run(ctx, env, c.Dirs, bench.ReadBeam)
}

// ScoreFlags name the server that is scored on recall, and the bounds of the score. Each dialogue, or all of them
// together, are sent to a new project, which is not removed.
type ScoreFlags struct {
	Remote
	ManagementKey string `name:"management-key" env:"ANNALS_MANAGEMENT_KEY" help:"Management key, which creates the projects; use the variable."`
	score.Bounds
	Wait       time.Duration `name:"wait" default:"10m" help:"Longest wait until everything that was sent can be recalled."`
	OneProject bool          `name:"one-project" help:"Send all dialogues to one project, not one each. --ablate and --fit still rank each alone."`
	Ablate     bool          `name:"ablate" help:"Also rank in this process, without one signal of the ranker at a time."`
	Fit        bool          `name:"fit" help:"Also fit the weights of the ranker to the dialogues, each held out once."`
	Misses     bool          `name:"misses" help:"Also ask the server, as its operator on the data folder, where each missed turn was lost."`
	JSON       bool          `name:"json" help:"Print the report as one JSON value."`
}

func (c *ScoreFlags) run(
	ctx context.Context, env *Env, names []string, read func(name string) (score.Dialogue, error),
) error {
	manager, err := c.management(c.ManagementKey)
	if err != nil {
		return err
	}
	program, err := env.Service()
	if err != nil && c.Misses {
		return err
	}
	cfg := bench.Config{
		Program: program, Manager: manager, DataDir: c.DataDir, Wait: c.Wait, Progress: env.Stderr, Misses: c.Misses,
		OneProject: c.OneProject,
	}
	measured, err := bench.Answer(ctx, cfg, names, read)
	if err != nil {
		return err
	}
	dialogues := measured.Dialogues
	report := score.Measure(dialogues, measured.Answers)
	if c.Ablate {
		if report.Ablation, err = score.Ablate(dialogues, recall.Signals()...); err != nil {
			return err
		}
	}
	if c.Fit {
		if report.Fit, err = score.FitWeights(dialogues); err != nil {
			return err
		}
	}
	if c.Misses {
		if report.Misses, err = bench.Misses(ctx, cfg, measured); err != nil {
			return err
		}
	}
	if c.JSON {
		err = printJSON(env.Stdout, report)
	} else if err = report.Table(env.Stdout); err == nil && c.Misses {
		err = score.PrintMisses(env.Stdout, report.Misses, bench.Causes())
	}
	if err != nil {
		return err
	}
	return c.Check(report)
}
