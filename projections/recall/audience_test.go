package recall_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// redactionFixture is a data point of the board whose first text names a salary.
type redactionFixture struct {
	*recalltest.Harness
	t     *testing.T
	board uuid.UUID
}

func newRedactionFixture(t *testing.T) *redactionFixture {
	r := &redactionFixture{Harness: recalltest.New(t, nil), t: t, board: uuid.New()}
	r.Send(recalltest.DataPoint{
		ID: "minutes", Content: "The salary of Dora is 90000.", OccurredAt: at(1),
		Audience: r.board,
	})
	r.Derive("minutes", 1, at(1), false, recalltest.Line{
		Kind: "claim", Content: "Dora's salary is 90000",
		Excerpt: "The salary of Dora is 90000.", Subject: "dora", Attribute: "salary",
	})
	r.CatchUp()
	return r
}

// publish sends the text without the salary, project-visible.
func (r *redactionFixture) publish() {
	r.Send(recalltest.DataPoint{ID: "minutes", Content: "The salary of Dora is settled.", OccurredAt: at(1)})
	r.CatchUp()
}

// sees is what a viewer recalls who reaches these audiences.
func (r *redactionFixture) sees(audiences ...uuid.UUID) string {
	q := r.Ask("What is the salary of Dora? 90000")
	q.Audiences = append([]uuid.UUID{uuid.Nil}, audiences...)
	var all []string
	for _, result := range r.Recall(q).Results {
		all = append(all, result.Content+" "+strings.Join(result.Sources[0].Excerpts, " "))
	}
	return strings.Join(all, "; ")
}

func (r *redactionFixture) want(secret bool, audiences ...uuid.UUID) {
	r.t.Helper()
	if got := r.sees(audiences...); strings.Contains(got, "90000") != secret {
		r.t.Errorf("%d audiences see %q, want the salary: %v", len(audiences), got, secret)
	}
}

func TestGate_RedactedAndWidenedWithoutDerivation(t *testing.T) {
	r := newRedactionFixture(t)
	r.want(false)
	r.want(true, r.board)
	r.publish()
	r.want(false)
	if got := r.sees(); !strings.Contains(got, "settled") {
		t.Errorf("the new text is not found: %q", got)
	}
	r.want(true, r.board) // no derivation: the memory stays the newest for its old viewers
}

func TestGate_RedactedAndWidenedWhileDerivationFails(t *testing.T) {
	r := newRedactionFixture(t)
	r.publish()
	name := stream.Name(stream.Memory, r.DataPoint("minutes"))
	state, _ := r.State("minutes")
	r.Append(name, memory.DerivationStarted{
		ProjectID: r.Project.ID, IngestionID: state.IngestionID, Revision: 2,
		Attempt: 1, StartedAt: r.Now,
	})
	r.CatchUp()
	r.want(false) // in flight
	r.want(true, r.board)
	r.Append(name, memory.Failed{
		ProjectID: r.Project.ID, IngestionID: state.IngestionID, Revision: 2, Attempt: 1, Code: ingestion.ContentRejected,
		Message: "refused", FailedAt: r.Now, Final: true,
	})
	r.CatchUp()
	r.want(false) // rejected
	r.want(true, r.board)
	r.Derive("minutes", 2, at(1), false, recalltest.Line{
		Kind: "claim", Content: "Dora's salary is settled",
		Excerpt: "settled", Subject: "dora", Attribute: "salary",
	})
	r.CatchUp()
	r.want(false)
	r.want(false, r.board) // the memory of the old text is historic
}

func TestGate_MoveOfTheSameTextWidens(t *testing.T) {
	r := newRedactionFixture(t)
	r.Send(recalltest.DataPoint{ID: "minutes", Content: "The salary of Dora is 90000.", OccurredAt: at(1)})
	r.CatchUp()
	r.want(true) // the text itself was made visible
	r.publish()
	r.want(true) // and it was visible when the next one came
}

func TestGate_NarrowedThenRedactedAndWidened(t *testing.T) {
	r := newRedactionFixture(t)
	r.Send(recalltest.DataPoint{ID: "minutes", Content: "The salary of Dora is 90000.", OccurredAt: at(1)})
	r.Send(recalltest.DataPoint{
		ID: "minutes", Content: "The salary of Dora is 90000.", OccurredAt: at(1),
		Audience: r.board,
	})
	r.CatchUp()
	r.want(false)
	r.publish()
	r.want(false)
	r.want(true, r.board)
}

func TestGate_RewrittenAndNarrowedThenWidened(t *testing.T) {
	r := newRedactionFixture(t)
	team := uuid.New()
	r.Send(recalltest.DataPoint{
		ID: "minutes", Content: "The salary of Dora is settled.", OccurredAt: at(1),
		Audience: team,
	})
	r.CatchUp()
	r.want(false, team)
	r.want(false, r.board) // the newest audience is the team
	r.want(true, r.board, team)
	r.Send(recalltest.DataPoint{ID: "minutes", Content: "The salary of Dora is settled.", OccurredAt: at(1)})
	r.CatchUp()
	r.want(false)
	r.want(false, team)
	r.want(true, r.board)
}

// The tables of the two projections may be of different moments.
func TestGate_MemoryOfARevisionThatIsNotKnownYet(t *testing.T) {
	r := newRedactionFixture(t)
	r.Send(recalltest.DataPoint{
		ID: "minutes", Content: "The salary of Dora is 95000.", OccurredAt: at(1),
		Audience: r.board,
	})
	r.Derive("minutes", 2, at(1), false, recalltest.Line{
		Kind: "claim", Content: "Dora's salary is 95000",
		Excerpt: "95000", Subject: "dora", Attribute: "salary",
	})
	r.CatchUp("memories", "recallindex")
	if got := r.sees(r.board); strings.Contains(got, "95000") {
		t.Errorf("found %q", got)
	}
	r.CatchUp()
	if got := r.sees(r.board); !strings.Contains(got, "95000") {
		t.Errorf("found %q", got)
	}
}

// A claim that the viewer may not read reveals nothing about one that they may.
func TestGate_RedactedClaimSupersedesForItsOwnViewersOnly(t *testing.T) {
	h := recalltest.New(t, nil)
	board := uuid.New()
	claim := func(text string) recalltest.Line {
		return recalltest.Line{
			Kind: "claim", Content: "Dora's city is " + text, Excerpt: text, Subject: "dora",
			Attribute: "city",
		}
	}
	h.Send(recalltest.DataPoint{ID: "old", Content: "Dora lives in the city of Oslo.", OccurredAt: at(1)})
	h.Derive("old", 1, at(1), false, claim("Oslo"))
	h.Send(recalltest.DataPoint{ID: "new", Content: "Dora lives in the city of Rome.", OccurredAt: at(2), Audience: board})
	h.Derive("new", 1, at(2), false, claim("Rome"))
	for n := range 9 { // so that a response has room for several memories
		h.Send(recalltest.DataPoint{ID: fmt.Sprint("filler", n), Content: "Dora's city, not Oslo", OccurredAt: at(3)})
	}
	h.CatchUp()
	superseded := func(audiences ...uuid.UUID) bool {
		t.Helper()
		q := h.Ask("Which city is Dora's city? Oslo")
		q.Audiences = append([]uuid.UUID{uuid.Nil}, audiences...)
		for _, r := range h.Recall(q).Results {
			if r.Artifact.Kind != recall.KindSource && strings.Contains(r.Content, "Oslo") {
				return r.Artifact.SupersededAt != nil
			}
		}
		t.Fatal("the old claim is not found")
		return false
	}
	if superseded() || !superseded(board) {
		t.Fatal("before: superseded for those who may read it, and nobody else")
	}
	h.Send(recalltest.DataPoint{ID: "new", Content: "Dora has moved to another city.", OccurredAt: at(2)})
	h.CatchUp()
	if superseded() {
		t.Error("a claim that was left out supersedes for everybody")
	}
	if !superseded(board) {
		t.Error("it no longer supersedes for those who may read it")
	}
}
