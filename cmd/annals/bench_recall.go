package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/bench"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/bench/score"
)

// LocomoCmd is "annals bench recall locomo".
type LocomoCmd struct {
	Score ScoreFlags `embed:""`
	Files []string   `arg:"" name:"file" help:"Dialogues of two people, one JSON file each."`
}

// Run measures and prints. It fails if a bound that was set is missed.
func (c *LocomoCmd) Run(ctx context.Context, env *Env) error {
	return c.Score.run(ctx, env, c.Files, bench.ReadLocomo)
}

// BeamCmd is "annals bench recall beam".
type BeamCmd struct {
	Score ScoreFlags `embed:""`
	Dirs  []string   `arg:"" name:"dir" help:"Chats with an assistant, a folder with chat.json and probing_questions.json each."`
}

// Run measures and prints. It fails if a bound that was set is missed.
func (c *BeamCmd) Run(ctx context.Context, env *Env) error {
	return c.Score.run(ctx, env, c.Dirs, bench.ReadBeam)
}

// ScoreFlags name the server that is scored on recall, and the bounds of the score. Each dialogue
// is sent to a new project, which is not removed.
type ScoreFlags struct {
	Remote
	ManagementKey string        `name:"management-key" setting:"ANNALS_MANAGEMENT_KEY" help:"Management key, which creates the projects; use the variable."`
	MinR10        float64       `name:"min-r10" help:"Fail if recall among 10 results, over all, is below this share."`
	MinR20        float64       `name:"min-r20" help:"Fail if recall among 20 results, over all, is below this share."`
	MinR100       float64       `name:"min-r100" help:"Fail if recall among 100 results, over all, is below this share."`
	MinWithin1000 float64       `name:"min-within-1000" help:"Fail if recall within 1,000 tokens, over all, is below this share."`
	MinWithin8000 float64       `name:"min-within-8000" help:"Fail if recall within 8,000 tokens, over all, is below this share."`
	MinGain       float64       `name:"min-gain" help:"Fail if recall within 8,000 tokens is less than this share above BM25's."`
	MaxSources    float64       `name:"max-sources" help:"Fail if a result cites more sources on the average."`
	MaxP50        time.Duration `name:"max-p50" help:"Fail if the median recall takes longer."`
	Wait          time.Duration `name:"wait" default:"10m" help:"Longest wait until everything that was sent can be recalled."`
	Ablate        bool          `name:"ablate" help:"Also rank in this process, without one signal of the ranker at a time."`
	Fit           bool          `name:"fit" help:"Also fit the weights of the ranker to the dialogues, each held out once."`
	JSON          bool          `name:"json" help:"Print the report as one JSON value."`
}

func (c *ScoreFlags) run(
	ctx context.Context, env *Env, names []string, read func(name string) (score.Dialogue, error),
) error {
	manager, err := c.management(c.ManagementKey)
	if err != nil {
		return err
	}
	cfg := bench.Config{Manager: manager, DataDir: c.DataDir, Wait: c.Wait, Progress: env.Stderr}
	dialogues, answers, err := bench.Answer(ctx, cfg, names, read)
	if err != nil {
		return err
	}
	report := score.Measure(dialogues, answers)
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
	if c.JSON {
		err = printJSON(env.Stdout, report)
	} else {
		err = report.Table(env.Stdout)
	}
	if err != nil {
		return err
	}
	return c.checkBounds(report)
}

func (c *ScoreFlags) checkBounds(r score.Report) error {
	var errs []error
	least := func(what string, got, want float64) {
		if got < want {
			errs = append(errs, fmt.Errorf("%s is %.3f, below %.3f", what, got, want))
		}
	}
	least("R@10", r.Overall.At[10], c.MinR10)
	least("R@20", r.Overall.At[20], c.MinR20)
	least("R@100", r.Overall.At[100], c.MinR100)
	least("recall within 1,000 tokens", r.Overall.Within[1000], c.MinWithin1000)
	least("recall within 8,000 tokens", r.Overall.Within[8000], c.MinWithin8000)
	if c.MinGain > 0 {
		gain := r.Overall.Within[8000] - r.Baseline.Within[8000]
		least("the gain over BM25 within 8,000 tokens", gain, c.MinGain)
	}
	if c.MaxSources > 0 && r.SourcesPerResult > c.MaxSources {
		errs = append(errs, fmt.Errorf("a result cites %.2f sources, more than %.2f", r.SourcesPerResult, c.MaxSources))
	}
	if got := time.Duration(r.P50 * float64(time.Millisecond)); c.MaxP50 > 0 && got > c.MaxP50 {
		errs = append(errs, fmt.Errorf("the median recall took %v, more than %v", got, c.MaxP50))
	}
	return errors.Join(errs...)
}
