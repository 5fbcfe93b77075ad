package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/beam"
	"github.com/annals-project/annals/internal/client"
	"github.com/annals-project/annals/internal/importer"
	"github.com/annals-project/annals/internal/locomo"
	"github.com/annals-project/annals/internal/recallscore"
)

// LocomoCmd is "annals bench recall locomo".
type LocomoCmd struct {
	Score scoring  `embed:""`
	Files []string `arg:"" name:"file" help:"Dialogues of two people, one JSON file each."`
}

// Run measures and prints; below a bound that was set it fails.
func (c *LocomoCmd) Run(ctx context.Context, env *Env) error {
	return c.Score.run(ctx, env, c.Files, func(name string) (recallscore.Dialogue, error) {
		f, err := os.Open(name)
		if err != nil {
			return recallscore.Dialogue{}, fmt.Errorf("open dialogue: %w", err)
		}
		defer func() { _ = f.Close() }()
		talk, err := locomo.Read(f)
		return talk.Dialogue(), err
	})
}

// BeamCmd is "annals bench recall beam".
type BeamCmd struct {
	Score scoring  `embed:""`
	Dirs  []string `arg:"" name:"dir" help:"Chats with an assistant, a folder with chat.json and probing_questions.json each."`
}

// Run measures and prints; below a bound that was set it fails.
func (c *BeamCmd) Run(ctx context.Context, env *Env) error {
	return c.Score.run(ctx, env, c.Dirs, beam.Read)
}

// scoring is how well recall finds what it should. It makes one project for each dialogue and leaves it there.
type scoring struct {
	Remote
	ManagementKey string        `name:"management-key" setting:"ANNALS_MANAGEMENT_KEY" help:"Management key, which makes the projects; better given by its variable."`
	MinR10        float64       `name:"min-r10" help:"Fail where recall among 10 results, over all, is below this share."`
	MinR20        float64       `name:"min-r20" help:"Fail where recall among 20 results, over all, is below this share."`
	MinR100       float64       `name:"min-r100" help:"Fail where recall among 100 results, over all, is below this share."`
	MinWithin1000 float64       `name:"min-within-1000" help:"Fail where recall within 1,000 tokens, over all, is below this share."`
	MinWithin8000 float64       `name:"min-within-8000" help:"Fail where recall within 8,000 tokens, over all, is below this share."`
	MinGain       float64       `name:"min-gain" help:"Fail where recall within 8,000 tokens is less than this share above BM25's."`
	MaxSources    float64       `name:"max-sources" help:"Fail where a result cites more sources on the average."`
	MaxP50        time.Duration `name:"max-p50" help:"Fail where the median recall takes longer."`
	Wait          time.Duration `name:"wait" default:"10m" help:"Longest wait until what was sent can be recalled."`
	Ablate        bool          `name:"ablate" help:"Also rank in this process, without one signal of the ranker at a time."`
	JSON          bool          `name:"json" help:"Print the report as one JSON value."`
}

func (c *scoring) run(ctx context.Context, env *Env, names []string, read func(name string) (recallscore.Dialogue, error)) error {
	manager, err := c.management(c.ManagementKey)
	if err != nil {
		return err
	}
	if _, _, err := manager.Ready(ctx); err != nil {
		return err
	}
	var dialogues []recallscore.Dialogue
	var answers []recallscore.Answer
	for _, name := range names {
		d, err := read(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		project, err := c.load(ctx, manager, d, env.Stderr)
		if err != nil {
			return fmt.Errorf("%s: %w", d.ID, err)
		}
		got, err := ask(ctx, project, d)
		if err != nil {
			return fmt.Errorf("%s: %w", d.ID, err)
		}
		dialogues, answers = append(dialogues, d), append(answers, got...)
	}
	report := recallscore.Measure(dialogues, answers)
	if c.Ablate {
		if report.Ablation, err = recallscore.Ablate(dialogues, recall.Signals()...); err != nil {
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
	return c.judge(report)
}

func (c *scoring) judge(r recallscore.Report) error {
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
		least("the gain over BM25 within 8,000 tokens", r.Overall.Within[8000]-r.Baseline.Within[8000], c.MinGain)
	}
	if c.MaxSources > 0 && r.SourcesPerResult > c.MaxSources {
		errs = append(errs, fmt.Errorf("a result cites %.2f sources, more than %.2f", r.SourcesPerResult, c.MaxSources))
	}
	if got := time.Duration(r.P50 * float64(time.Millisecond)); c.MaxP50 > 0 && got > c.MaxP50 {
		errs = append(errs, fmt.Errorf("the median recall took %v, more than %v", got, c.MaxP50))
	}
	return errors.Join(errs...)
}

// load makes a project of the dialogue, sends its turns, and waits until each of them can be recalled.
func (c *scoring) load(ctx context.Context, manager *client.Client, d recallscore.Dialogue, out io.Writer) (*client.Client, error) {
	project, err := manager.CreateProject(ctx, "Dialogue "+d.ID)
	if err != nil {
		return nil, fmt.Errorf("make a project: %w", err)
	}
	key, err := manager.CreateKey(ctx, project.Slug, "bench")
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	to, err := client.New(manager.Base(), key.Key, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("address of the server: %w", err)
	}
	var lines bytes.Buffer
	for _, p := range d.Points {
		line, err := importer.Line(p)
		if err != nil {
			return nil, err
		}
		_, _ = lines.Write(line)
	}
	began := time.Now()
	var last string
	state, err := importer.Import{
		To: to, In: &lines, State: importer.NewState(to.Base()),
		Taken: func(r client.BatchReceipt) { last = r.IngestionID },
	}.Run(ctx)
	if err != nil {
		return nil, fmt.Errorf("send the turns: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	status, err := to.WaitSettled(ctx, last, nil)
	if err != nil {
		return nil, err
	}
	if status.Blocked {
		return nil, fmt.Errorf("%s stopped: annals failed lists them", plural(status.Readiness.Failed, "send", "sends"))
	}
	_, _ = fmt.Fprintf(out, "%s: %d turns in project %s, settled in %.1f s\n", d.ID, state.Points, project.Slug, time.Since(began).Seconds())
	return to, nil
}

// ask asks every question of a dialogue, one after the other.
func ask(ctx context.Context, to *client.Client, d recallscore.Dialogue) ([]recallscore.Answer, error) {
	at := d.AskedAt.Format(time.RFC3339)
	answers := make([]recallscore.Answer, 0, len(d.Questions))
	for _, q := range d.Questions {
		began := time.Now()
		page, err := to.Recall(ctx, client.RecallRequest{Query: q.Text, Identity: d.Asker, Limit: 100, MaxTokens: 32000, QueryTimestamp: at})
		if err != nil {
			return nil, fmt.Errorf("recall %q: %w", q.Text, err)
		}
		answers = append(answers, recallscore.Answer{Question: q, Results: page.Results, Took: time.Since(began)})
	}
	return answers, nil
}
