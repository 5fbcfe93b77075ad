package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/annals-project/annals/internal/bench/beam"
	"github.com/annals-project/annals/internal/bench/locomo"
	"github.com/annals-project/annals/internal/bench/score"
	"github.com/annals-project/annals/internal/client"
	"github.com/annals-project/annals/internal/importer"
)

// ReadLocomo reads a LoCoMo dialogue of two people from a JSON file.
func ReadLocomo(name string) (score.Dialogue, error) {
	f, err := os.Open(name)
	if err != nil {
		return score.Dialogue{}, fmt.Errorf("open dialogue: %w", err)
	}
	defer func() { _ = f.Close() }()
	talk, err := locomo.Read(f)
	return talk.Dialogue(), err
}

// ReadBeam reads a BEAM chat with an assistant from a folder.
func ReadBeam(dir string) (score.Dialogue, error) { return beam.Read(dir) }

// Answer sends each dialogue to a separate project, and returns the dialogues and what recall found
// for their questions. The projects remain.
func Answer(
	ctx context.Context, cfg Config, names []string, read func(name string) (score.Dialogue, error),
) ([]score.Dialogue, []score.Answer, error) {
	if _, _, err := cfg.Manager.Ready(ctx); err != nil {
		return nil, nil, err
	}
	var dialogues []score.Dialogue
	var answers []score.Answer
	for _, name := range names {
		d, err := read(name)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		project, err := sendDialogue(ctx, cfg, d)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d.ID, err)
		}
		got, err := recallAll(ctx, project, d)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d.ID, err)
		}
		dialogues, answers = append(dialogues, d), append(answers, got...)
	}
	return dialogues, answers, nil
}

// sendDialogue creates a project for a dialogue, sends its turns, and waits until all of them can be
// recalled.
func sendDialogue(ctx context.Context, cfg Config, d score.Dialogue) (*client.Client, error) {
	slug, key, err := newProject(ctx, cfg.Manager, "Dialogue "+d.ID)
	if err != nil {
		return nil, err
	}
	to, err := clientOf(cfg.Manager.Base(), key, client.Options{})
	if err != nil {
		return nil, err
	}
	var lines bytes.Buffer
	for _, p := range d.DataPoints {
		line, err := importer.Line(p)
		if err != nil {
			return nil, err
		}
		_, _ = lines.Write(line)
	}
	began := time.Now()
	state, err := importer.Import{To: to, In: &lines, State: importer.NewState(to.Base())}.Run(ctx)
	if err != nil {
		return nil, fmt.Errorf("send the turns: %w", err)
	}
	if err := waitSettled(ctx, to, state.LastIngestion, cfg.Wait); err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(cfg.Progress, "%s: %d turns in project %s, settled in %.1f s\n",
		d.ID, state.Points, slug, time.Since(began).Seconds())
	return to, nil
}

// recallAll recalls for every question of a dialogue, one after the other.
func recallAll(ctx context.Context, to *client.Client, d score.Dialogue) ([]score.Answer, error) {
	at := d.AskedAt.Format(time.RFC3339)
	answers := make([]score.Answer, 0, len(d.Questions))
	for _, q := range d.Questions {
		began := time.Now()
		response, err := to.Recall(ctx,
			client.RecallRequest{Query: q.Text, Identity: d.Asker, Limit: 100, MaxTokens: 32000, QueryTimestamp: at})
		if err != nil {
			return nil, fmt.Errorf("recall %q: %w", q.Text, err)
		}
		answers = append(answers, score.Answer{Question: q, Results: response.Results, Took: time.Since(began)})
	}
	return answers, nil
}
