package datapoints_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/stream"
)

// audiences reads the last audience of each revision while it was the newest; "?" is unknown.
func (w *fixture) audiences(source string) map[int]string {
	w.t.Helper()
	w.apply()
	rows, err := w.Queries.DB.Query(w.t.Context(), `select number, audience from datapoints.revisions
		where data_point = $1`, id(source))
	if err != nil {
		w.t.Fatal(err)
	}
	got := map[int]string{}
	var number int
	var audience *uuid.UUID
	if _, err := pgx.ForEachRow(rows, []any{&number, &audience}, func() error {
		got[number] = "?"
		if audience != nil {
			got[number] = names[*audience]
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return got
}

var names = map[uuid.UUID]string{uuid.Nil: "project", id("team"): "team", id("board"): "board"}

// movedLate stores a historic move: one of a batch, after effects that followed its commit.
func (w *fixture) movedLate(send, source string, revision int, audience uuid.UUID) {
	current := w.states[source]
	effect := current
	effect.Revision, effect.Audience = revision, audience
	w.last = w.Append(stream.Name(stream.DataPoint, id(source)), &datapoint.Moved{
		Send: w.send(send, location{items: 1, commit: 1}), States: datapoint.States{Effect: effect, Current: &current},
	})
}

func (w *fixture) wantAudiences(source string, want map[int]string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.audiences(source)); diff != "" {
		w.t.Errorf("audiences (-want +got):\n%s", diff)
	}
}

func TestRevision_LastAudience(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.revised("s1", "a", alone)
	w.moved("s2", "a", id("board"), alone)
	w.wantAudiences("a", map[int]string{1: "board"})
	w.moved("s3", "a", id("team"), alone)
	w.moved("s4", "a", id("board"), alone)
	w.revised("s5", "a", alone) // keeps the audience
	w.moved("s6", "a", uuid.Nil, alone)
	w.wantAudiences("a", map[int]string{1: "board", 2: "project"})
}

func TestRevision_HistoricMove(t *testing.T) {
	w := newFixture(t)
	w.revised("s1", "a", alone)
	w.moved("s2", "a", id("board"), alone)
	w.movedLate("s3", "a", 1, id("team"))
	w.wantAudiences("a", map[int]string{1: "board"}) // the later move wins
	w.revised("s4", "a", alone)
	w.movedLate("s5", "a", 1, id("team"))
	w.wantAudiences("a", map[int]string{1: "?", 2: "board"})
}
