package recall_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/bench/locomo"
	"github.com/annals-project/annals/internal/bench/needles"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// leastNeedles is the least share of questions whose text must be the first result, over all kinds and arrangements.
const leastNeedles = 0.99

// askedProject is a project with what recall found for its questions.
type askedProject struct {
	needles.Project
	answers [][]client.RecallResult
}

// TestNeedles guards that of texts of one shape the one with the needle of the question is first: each kind of needle
// with half of the arrangements of templates, authors and times, in a project each.
func TestNeedles(t *testing.T) {
	if testing.Short() {
		t.Skip("it is about ranks, one question after the other")
	}
	const parts = 4
	var asked [parts][]askedProject
	t.Run("projects", func(t *testing.T) {
		for part := range parts {
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				h := recalltest.New(t, nil)
				for n, kind := range needles.Kinds() {
					// Every other arrangement of a kind, the rest of them of the next kind.
					for arrangement := n % 2; arrangement < needles.Arrangements; arrangement += 2 {
						if arrangement/2%parts == part {
							asked[part] = append(asked[part], askNeedles(h, kind, arrangement))
						}
					}
				}
			})
		}
	})
	var report needles.Report
	for _, p := range slices.Concat(asked[:]...) {
		report.Add(p.Project, p.answers)
	}
	if err := report.Table(t.Output()); err != nil {
		t.Error(err)
	}
	if err := report.Check(leastNeedles); err != nil {
		t.Error(err)
	}
}

// askNeedles sends the texts of one kind to a new project and asks for each.
func askNeedles(h *recalltest.Harness, kind needles.Kind, arrangement int) askedProject {
	p := needles.New(kind, needles.Sizes{Texts: 6, Others: 6, Arrangement: arrangement})
	inNewProject(h)
	for _, text := range p.Texts {
		sendText(h, recalltest.DataPoint{ID: text.ID, Content: text.Content, Author: text.Author, OccurredAt: text.At})
	}
	h.CatchUp()
	var answers [][]client.RecallResult
	for _, question := range p.Questions {
		q := h.Ask(question.Text)
		q.Identity, q.Limit = needles.Asker, needles.Ranks
		answers = append(answers, resultsOf(h.Recall(q)))
	}
	return askedProject{p, answers}
}

// inNewProject makes a harness send to and ask an empty project. All that was sent before must be projected.
func inNewProject(h *recalltest.Harness) {
	h.Project = auth.Project{ID: uuid.New(), Number: h.Project.Number + 1, Slug: "default", Namespace: uuid.New()}
}

// sourcesOf returns the source ids of results, each once, in order.
func sourcesOf(page recall.Response) []string {
	var ids []string
	seen := map[string]bool{}
	for _, r := range page.Results {
		if id := r.Sources[0].SourceID; !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}

// The least that categories 1 to 4 must reach.
const (
	leastAt10  = 0.55
	leastAt100 = 0.75
)

// TestDialogues measures recall of dialogues, once without memories and once with those of the
// built-in extractor. It reads the folder that ANNALS_TEST_LOCOMO names.
func TestDialogues(t *testing.T) {
	folder := os.Getenv("ANNALS_TEST_LOCOMO")
	if folder == "" {
		t.Skip("ANNALS_TEST_LOCOMO names no folder of dialogues")
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogue in %s: %v", folder, err)
	}
	for _, derive := range []bool{false, true} {
		t.Run(fmt.Sprintf("memories %v", derive), func(t *testing.T) {
			total := &tally{kinds: kinds{}}
			for _, name := range files {
				dialogue(t, name, derive, total)
			}
			t.Logf("%s", total)
			if got := total.mean(10); got < leastAt10 {
				t.Errorf("R@10 is %.3f", got)
			}
			if got := total.mean(100); got < leastAt100 {
				t.Errorf("R@100 is %.3f", got)
			}
		})
	}
}

func dialogue(t *testing.T, name string, derive bool, total *tally) {
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := locomo.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	h := recalltest.New(t, nil)
	for _, turn := range c.DataPoints() {
		when, err := time.Parse(time.RFC3339Nano, turn.Timestamp)
		if err != nil {
			t.Fatal(err)
		}
		h.Send(recalltest.DataPoint{
			ID: turn.ID, Content: turn.Content, Label: turn.Label, Author: turn.Identity,
			OccurredAt: when,
		})
		if derive {
			id := h.DataPoint(turn.ID)
			memories := comprehend.Extract(comprehend.Input{
				DataPoint: id, Revision: 1, Content: turn.Content, Label: turn.Label, Author: turn.Identity, OccurredAt: when,
			})
			h.DeriveMemories(turn.ID, 1, when, false, memories)
			for _, m := range memories {
				total.kinds[m.Kind]++
			}
		}
	}
	h.CatchUp()
	asked := c.AskedAt()
	for _, question := range c.Questions {
		if question.Category == locomo.Adversarial {
			continue
		}
		q := h.Ask(question.Text)
		q.At = &asked
		began := time.Now()
		page := h.Recall(q)
		total.took = append(total.took, time.Since(began))
		ranks := map[string]int{}
		for i, r := range page.Results {
			if r.Artifact.Kind != recall.KindSource {
				total.memories++
			}
			total.results++
			for _, s := range r.Sources {
				if ranks[s.SourceID] == 0 {
					ranks[s.SourceID] = i + 1
				}
			}
		}
		for _, k := range cuts {
			found := 0
			for _, turn := range question.Evidence {
				if rank := ranks[c.SourceID(turn)]; rank > 0 && rank <= k {
					found++
				}
			}
			total.at[k] += float64(found) / float64(len(question.Evidence))
		}
		total.questions++
	}
}

var cuts = []int{1, 5, 10, 20, 50, 100}

// tally is the sum over all dialogues.
type tally struct {
	questions, results, memories int
	at                           [101]float64
	took                         []time.Duration
	kinds                        kinds
}

type kinds map[string]int

func (s *tally) mean(k int) float64 { return s.at[k] / float64(s.questions) }

func (s *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d questions,", s.questions)
	for _, k := range cuts {
		fmt.Fprintf(&b, " R@%d %.3f", k, s.mean(k))
	}
	slices.Sort(s.took)
	fmt.Fprintf(&b, ", %.1f results of which %.1f memories, p50 %s p99 %s, derived %v",
		float64(s.results)/float64(s.questions),
		float64(s.memories)/float64(s.questions), s.took[len(s.took)/2], s.took[len(s.took)*99/100], s.kinds)
	return b.String()
}
