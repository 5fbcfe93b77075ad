package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/needles"
	"github.com/annals-project/annals/internal/importer"
)

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
