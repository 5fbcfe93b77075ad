package recall_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/auth"
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
