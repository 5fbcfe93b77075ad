package main

import (
	"context"
	"time"

	"github.com/annals-project/annals/bench"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/bench/score"
)

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
