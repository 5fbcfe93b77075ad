package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/annals-project/annals/internal/client"
	"github.com/annals-project/annals/internal/importer"
	"github.com/annals-project/annals/internal/locomo"
)

// LocomoCmd is "annals bench recall locomo". It makes one project for each file and leaves it there.
type LocomoCmd struct {
	Remote
	ManagementKey string        `name:"management-key" setting:"ANNALS_MANAGEMENT_KEY" help:"Management key, which makes the projects; better given by its variable."`
	Files         []string      `arg:"" name:"file" help:"Conversations, one JSON file each."`
	MinR10        float64       `name:"min-r10" help:"Fail where recall among 10 results, categories 1 to 4, is below this share."`
	MinR100       float64       `name:"min-r100" help:"Fail where recall among 100 results, categories 1 to 4, is below this share."`
	MaxP50        time.Duration `name:"max-p50" help:"Fail where the median recall takes longer."`
	Wait          time.Duration `name:"wait" default:"10m" help:"Longest wait until what was sent can be recalled."`
	JSON          bool          `name:"json" help:"Print the report as one JSON value."`
}

// Run measures and prints; below a bound that was set it fails.
func (c *LocomoCmd) Run(ctx context.Context, env *Env) error {
	manager, err := c.management(c.ManagementKey, client.Options{})
	if err != nil {
		return err
	}
	if _, _, err := manager.Ready(ctx); err != nil {
		return err
	}
	var answers []locomo.Answer
	var turns, skipped int
	for _, name := range c.Files {
		talk, err := readConversation(name)
		if err != nil {
			return err
		}
		project, err := c.load(ctx, manager, talk, env.Stderr)
		if err != nil {
			return fmt.Errorf("%s: %w", talk.ID, err)
		}
		got, err := ask(ctx, project, talk)
		if err != nil {
			return fmt.Errorf("%s: %w", talk.ID, err)
		}
		answers = append(answers, got...)
		turns, skipped = turns+len(talk.Turns), skipped+talk.Skipped
	}
	report := locomo.Measure(answers)
	report.Conversations, report.Turns, report.Skipped = len(c.Files), turns, skipped
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

func (c *LocomoCmd) judge(r locomo.Report) error {
	var errs []error
	if got := r.Overall.At[10]; got < c.MinR10 {
		errs = append(errs, fmt.Errorf("R@10 is %.3f, below %.3f", got, c.MinR10))
	}
	if got := r.Overall.At[100]; got < c.MinR100 {
		errs = append(errs, fmt.Errorf("R@100 is %.3f, below %.3f", got, c.MinR100))
	}
	if got := time.Duration(r.P50 * float64(time.Millisecond)); c.MaxP50 > 0 && got > c.MaxP50 {
		errs = append(errs, fmt.Errorf("the median recall took %v, more than %v", got, c.MaxP50))
	}
	return errors.Join(errs...)
}

func readConversation(name string) (locomo.Conversation, error) {
	f, err := os.Open(name)
	if err != nil {
		return locomo.Conversation{}, fmt.Errorf("open conversation: %w", err)
	}
	defer func() { _ = f.Close() }()
	talk, err := locomo.Read(f)
	if err != nil {
		return locomo.Conversation{}, fmt.Errorf("%s: %w", name, err)
	}
	return talk, nil
}

// load makes a project of the conversation, sends its turns, and waits until each of them can be recalled.
func (c *LocomoCmd) load(ctx context.Context, manager *client.Client, talk locomo.Conversation, out io.Writer) (*client.Client, error) {
	project, err := manager.CreateProject(ctx, "LoCoMo "+talk.ID)
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
	for _, p := range talk.DataPoints() {
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
	_, _ = fmt.Fprintf(out, "%s: %d turns in project %s, settled in %.1f s\n", talk.ID, state.Points, project.Slug, time.Since(began).Seconds())
	return to, nil
}

// ask asks every question of a conversation, one after the other.
func ask(ctx context.Context, to *client.Client, talk locomo.Conversation) ([]locomo.Answer, error) {
	at := talk.AskedAt().Format(time.RFC3339)
	answers := make([]locomo.Answer, 0, len(talk.Questions))
	for _, q := range talk.Questions {
		began := time.Now()
		page, err := to.Recall(ctx, client.RecallRequest{
			Query: q.Text, Identity: talk.Turns[0].Speaker, Limit: 100, MaxTokens: 32000, QueryTimestamp: at,
		})
		if err != nil {
			return nil, fmt.Errorf("recall %q: %w", q.Text, err)
		}
		a := locomo.Answer{Category: q.Category, Results: page.Results, Took: time.Since(began)}
		for _, turn := range q.Evidence {
			a.Evidence = append(a.Evidence, talk.SourceID(turn))
		}
		answers = append(answers, a)
	}
	return answers, nil
}
