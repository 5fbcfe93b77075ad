package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/bench/beam"
	"github.com/annals-project/annals/internal/bench/locomo"
	"github.com/annals-project/annals/internal/bench/score"
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

// Measured are dialogues with what recall found for their questions.
type Measured struct {
	Dialogues []score.Dialogue
	Answers   []score.Answer
	// asked are the dialogues again, each with the key of its project and its answers.
	asked []askedDialogue
}

type askedDialogue struct {
	score.Dialogue
	key     string
	answers []score.Answer
}

// Answer sends each dialogue to a separate project, or with OneProject all of them to one, and returns the dialogues
// and what recall found for their questions. The projects remain.
func Answer(
	ctx context.Context, cfg Config, names []string, read func(name string) (score.Dialogue, error),
) (m Measured, err error) {
	if err := answers(ctx, cfg.Manager); err != nil {
		return m, err
	}
	for _, name := range names {
		d, err := read(name)
		if err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
		m.Dialogues = append(m.Dialogues, d)
	}
	perProject := 1
	if cfg.OneProject {
		if perProject = max(1, len(m.Dialogues)); !differ(m.Dialogues) {
			return m, errors.New("--one-project needs dialogues of different ids: one of them would replace another")
		}
	}
	for group := range slices.Chunk(m.Dialogues, perProject) {
		project, key, err := sendDialogues(ctx, cfg, group)
		if err != nil {
			return m, fmt.Errorf("%s: %w", idsOf(group), err)
		}
		for _, d := range group {
			answers, err := recallAll(ctx, project, d)
			if err != nil {
				return m, fmt.Errorf("%s: %w", d.ID, err)
			}
			m.Answers = append(m.Answers, answers...)
			m.asked = append(m.asked, askedDialogue{Dialogue: d, key: key, answers: answers})
		}
	}
	return m, nil
}

// differ reports whether no two dialogues have the same id.
func differ(dialogues []score.Dialogue) bool {
	seen := map[string]bool{}
	for _, d := range dialogues {
		seen[d.ID] = true
	}
	return len(seen) == len(dialogues)
}

func idsOf(dialogues []score.Dialogue) string {
	ids := make([]string, len(dialogues))
	for i, d := range dialogues {
		ids[i] = d.ID
	}
	return strings.Join(ids, ", ")
}

// sendDialogues creates a project for dialogues, sends their turns, and waits until all of them can be
// recalled. It returns the key of the project, too.
func sendDialogues(
	ctx context.Context, cfg Config, dialogues []score.Dialogue,
) (_ *client.Client, key string, err error) {
	name := "Dialogue " + dialogues[0].ID
	if len(dialogues) > 1 {
		name = fmt.Sprintf("%d dialogues", len(dialogues))
	}
	slug, key, err := newProject(ctx, cfg.Manager, name)
	if err != nil {
		return nil, "", err
	}
	if cfg.Misses {
		if _, err := explain(ctx, cfg, client.RecallRequest{Query: "hello", Identity: "bench"}, key, nil); err != nil {
			return nil, "", err
		}
	}
	to, err := clientOf(cfg.Manager.BaseURL(), key)
	if err != nil {
		return nil, "", err
	}
	var lines bytes.Buffer
	for _, d := range dialogues {
		for _, p := range d.DataPoints {
			line, err := importer.Line(p)
			if err != nil {
				return nil, "", err
			}
			_, _ = lines.Write(line)
		}
	}
	began := time.Now()
	begin := importer.NewState(importer.Target{Server: to.BaseURL()})
	state, err := importer.Import{To: to, In: &lines, State: begin}.Run(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("send the turns: %w", err)
	}
	if err := waitSettled(ctx, to, state.LastIngestion, cfg.Wait); err != nil {
		return nil, "", err
	}
	if err := waitEmbedded(ctx, cfg); err != nil {
		return nil, "", err
	}
	_, _ = fmt.Fprintf(cfg.Progress, "%s: %d turns in project %s, settled in %.1f s\n",
		idsOf(dialogues), state.Points, slug, time.Since(began).Seconds())
	return to, key, nil
}

// embeddedPoll is how often a server is asked whether it has embedded everything.
const embeddedPoll = 200 * time.Millisecond

// waitEmbedded waits until the server of the data folder has embedded all data points. It does not wait for a server
// without embeddings, or of which it has no data folder.
func waitEmbedded(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeout(ctx, cfg.Wait)
	defer cancel()
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "annals.sock")); err != nil {
		return nil // no server runs on the folder
	}
	for {
		var p struct{ Embedded, Captured int64 }
		if err := operate(ctx, cfg.Program, cfg.DataDir, &p, "embeddings", "status"); err != nil {
			return fmt.Errorf("wait until everything is embedded: %w", err)
		}
		if p.Embedded == p.Captured {
			return nil
		}
		if err := backoff.Pause(ctx, embeddedPoll, nil); err != nil {
			return fmt.Errorf("%d of %d data points are embedded: %w", p.Embedded, p.Captured, err)
		}
	}
}

// recallAll recalls for every question of a dialogue, one after the other.
func recallAll(ctx context.Context, to *client.Client, d score.Dialogue) ([]score.Answer, error) {
	answers := make([]score.Answer, 0, len(d.Questions))
	for _, q := range d.Questions {
		began := time.Now()
		response, err := to.Recall(ctx, requestOf(d, q, 32000))
		if err != nil {
			return nil, fmt.Errorf("recall %q: %w", q.Text, err)
		}
		answers = append(answers, score.Answer{Question: q, Results: response.Results, Took: time.Since(began)})
	}
	return answers, nil
}

func requestOf(d score.Dialogue, q score.Question, tokens int) client.RecallRequest {
	return client.RecallRequest{
		Query: q.Text, Identity: d.Asker, Limit: score.MissLimit, MaxTokens: tokens,
		QueryTimestamp: d.AskedAt.Format(time.RFC3339),
	}
}
