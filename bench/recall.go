package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/bench/beam"
	"github.com/annals-project/annals/internal/bench/locomo"
	"github.com/annals-project/annals/internal/bench/needles"
	"github.com/annals-project/annals/internal/bench/score"
	"github.com/annals-project/annals/internal/importer"
	"github.com/annals-project/annals/projections/recall/explained"
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

// NeedlesOptions are flags: the sizes of Needles. Model is for the separate server alone.
type NeedlesOptions struct {
	Texts  int    `name:"texts" default:"400" help:"Texts of one shape in a project, 2 to 1,000; each is asked for."`
	Others int    `name:"others" default:"200" help:"Texts of everyday content among them, 0 to 500."`
	Rounds int    `name:"rounds" default:"1" help:"Projects of each kind, 1 to 24, of other templates, authors and times."`
	Model  string `name:"model" help:"With --own: embed the texts too, by the built-in model in this file or folder."`
}

// Validate is called by the parser.
func (o NeedlesOptions) Validate() error {
	if o.Texts < 2 || o.Texts > needles.MaxTexts || o.Others < 0 || o.Others > 500 || o.Rounds < 1 ||
		o.Rounds > needles.Arrangements {
		return fmt.Errorf("want --texts of 2 to %d, --others of 0 to 500, and --rounds of 1 to %d", needles.MaxTexts,
			needles.Arrangements)
	}
	return nil
}

// needlesRun is one run of Needles.
type needlesRun struct {
	measurement
	opts   NeedlesOptions
	report needles.Report
}

// Needles sends texts that differ only in a needle to one project for each kind and round, asks for every one of them,
// and reports where the text with the needle was found.
func Needles(ctx context.Context, cfg Config, opts NeedlesOptions) (*needles.Report, error) {
	if opts.Model != "" && cfg.Manager != nil {
		return nil, errors.New("--model is for --own: another server has the model that it was started with")
	}
	m := &needlesRun{measurement: newMeasurement(cfg), opts: opts}
	if _, err := m.measure(ctx, m.startServer, m.ask); err != nil {
		return nil, err
	}
	return &m.report, nil
}

// startServer starts the separate server, with the embedding model if there is one.
func (m *needlesRun) startServer(ctx context.Context) error {
	if m.opts.Model == "" {
		return m.startOwn(ctx)
	}
	return m.startWithModel(ctx, m.opts.Model)
}

// ask sends and asks one project after the other. Kinds begin at different arrangements, so that one round has all.
func (m *needlesRun) ask(ctx context.Context) error {
	for n, kind := range needles.Kinds() {
		for round := range m.opts.Rounds {
			p := needles.New(kind, needles.Sizes{
				Texts: m.opts.Texts, Others: m.opts.Others, Arrangement: (n + round) % needles.Arrangements,
			})
			if err := m.askProject(ctx, p); err != nil {
				return fmt.Errorf("%s: %w", p.Kind, err)
			}
		}
	}
	return nil
}

func (m *needlesRun) askProject(ctx context.Context, p needles.Project) error {
	to, err := m.project(ctx, p.Kind)
	if err != nil {
		return err
	}
	if err := m.send(ctx, to, p); err != nil {
		return err
	}
	answers := make([][]client.RecallResult, len(p.Questions))
	began := time.Now()
	for i, q := range p.Questions {
		response, err := to.Recall(ctx, client.RecallRequest{Query: q.Text, Identity: needles.Asker, Limit: needles.Ranks})
		if err != nil {
			return fmt.Errorf("recall %q: %w", q.Text, err)
		}
		answers[i] = response.Results
	}
	m.report.Add(p, answers)
	_, _ = fmt.Fprintf(m.Progress, "%s (%s, %s): %d questions in %.1f s\n", p.Kind, p.Authors, p.Times, len(p.Questions),
		time.Since(began).Seconds())
	return nil
}

// send sends the texts of a project and waits until all can be found.
func (m *needlesRun) send(ctx context.Context, to *client.Client, p needles.Project) error {
	var lines bytes.Buffer
	for _, text := range p.Texts {
		line, err := importer.Line(client.DataPoint{
			ID: text.ID, Content: text.Content, Identity: text.Author, Timestamp: text.At.Format(time.RFC3339),
		})
		if err != nil {
			return err
		}
		_, _ = lines.Write(line)
	}
	begin := importer.NewState(importer.Target{Server: to.BaseURL()})
	state, err := importer.Import{To: to, In: &lines, State: begin}.Run(ctx)
	if err != nil {
		return fmt.Errorf("send the texts: %w", err)
	}
	if err := waitSettled(ctx, to, state.LastIngestion, m.Wait); err != nil {
		return err
	}
	return waitEmbedded(ctx, m.Config)
}

// Causes are the causes of misses, in the order of the steps of a recall.
func Causes() []string {
	var causes []string
	for _, v := range explained.Verdicts() {
		causes = append(causes, string(v))
	}
	return causes
}

// Misses explains all evidence that the responses lack, through the operator socket of the data folder.
func Misses(ctx context.Context, cfg Config, m Measured) ([]score.Miss, error) {
	misses := []score.Miss{}
	for _, d := range m.asked {
		for _, a := range d.answers {
			missing := a.Missing()
			for len(missing) > 0 {
				some := missing[:min(len(missing), explained.MaxSources)]
				missing = missing[len(some):]
				found, err := explain(ctx, cfg, requestOf(d.Dialogue, a.Question, score.MissTokens), d.key, some)
				if err != nil {
					return nil, fmt.Errorf("%s: %q: %w", d.ID, a.Text, err)
				}
				for _, s := range found.Sources {
					misses = append(misses, score.Miss{
						Dialogue: d.ID, Category: a.Category, Question: a.Text, SourceID: s.SourceID,
						Cause: string(s.Verdict), Why: s.Why, Rank: s.Rank,
					})
				}
			}
		}
	}
	return misses, nil
}

// explain explains a recall in the project of a key.
func explain(
	ctx context.Context, cfg Config, q client.RecallRequest, key string, sourceIDs []string,
) (explained.Explanation, error) {
	args := []string{
		"recall", q.Query, "--explain", "--identity", q.Identity, "--limit", strconv.Itoa(q.Limit),
		"--max-tokens", strconv.Itoa(q.MaxTokens), "--at", q.QueryTimestamp,
	}
	for _, id := range sourceIDs {
		args = append(args, "--missing", id)
	}
	var found explained.Explanation
	err := operateWith(ctx, cfg.Program, cfg.DataDir, key, &found, args...)
	if err != nil {
		err = fmt.Errorf("--misses asks the server %s through the socket in its data folder: %w", cfg.Manager.BaseURL(), err)
	}
	return found, err
}
