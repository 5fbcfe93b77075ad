package directory_test

import (
	"errors"
	"testing"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/directory"
)

func TestReach(t *testing.T) {
	w := newFixture(t)
	steps := []struct {
		name  string
		write func()
		want  map[string]string
	}{
		{"nobody is known", func() {
			w.rule("a", audience.MatchAll, audience.Condition{Trait: "team", Operator: audience.DoesNotExist})
		}, map[string]string{"ana": "[]"}},
		{"ana appears", func() { w.appear("ana") }, map[string]string{"ana": "[a]", "ben": "[]"}},
		{"ana has a team", func() { w.put("ana", traits{"team": "red"}) }, map[string]string{"ana": "[]"}},
		{"an audience of the team", func() { w.rule("b", audience.MatchAny, is("team", "red"), is("team", "blue")) }, map[string]string{"ana": "[b]"}},
		{"a list of ana and of ben, who is not there", func() { w.fixed("c", "ana", "ben") }, map[string]string{"ana": "[b c]", "ben": "[]"}},
		{"ben comes later", func() { w.put("ben", traits{"team": "blue"}) }, map[string]string{"ana": "[b c]", "ben": "[b]"}},
		{"the list is put again", func() { w.fixed("c", "ana", "ben") }, map[string]string{"ana": "[b c]", "ben": "[b c]"}},
		{"ana goes and comes again", func() { w.remove("ana"); w.put("ana", traits{"team": "red"}) }, map[string]string{"ana": "[b]", "ben": "[b c]"}},
		{"the list becomes a rule", func() {
			w.rule("c", audience.MatchAll, audience.Condition{Trait: "team", Operator: audience.IsNot, Values: []string{"red"}})
		}, map[string]string{"ana": "[b]", "ben": "[b c]"}},
		{"the rule of the team goes", func() { w.endAudience("b") }, map[string]string{"ana": "[]", "ben": "[c]"}},
		{"and becomes a list, and goes", func() { w.fixed("c", "ana", "ben"); w.endAudience("c") }, map[string]string{"ana": "[]", "ben": "[]"}},
	}
	for _, step := range steps {
		step.write()
		w.apply()
		for name, want := range step.want {
			if got := w.reach(name); got != want {
				t.Errorf("%s: %s reaches %s, want %s", step.name, name, got, want)
			}
		}
	}
}

func TestReach_OtherProject(t *testing.T) {
	w := newFixture(t, "there")
	w.put("ana", traits{"team": "red"})
	w.fixed("a", "ana")
	w.rule("b", audience.MatchAll, is("team", "red"))
	w.apply()
	if got := w.reach("ana"); got != "[a b]" {
		t.Errorf("ana reaches %s", got)
	}
	there := project("there")
	for _, p := range []struct {
		name    string
		project func() (n int, err error)
	}{
		{"the neighbour", func() (int, error) {
			r, err := w.queries.Reach(t.Context(), there, "ana")
			return len(r.Audiences), err
		}},
		{"one that has our namespace", func() (int, error) {
			forged := there
			forged.Namespace = here.Namespace
			r, err := w.queries.Reach(t.Context(), forged, "ana")
			return len(r.Audiences), err
		}},
		{"one that does not exist", func() (int, error) {
			r, err := w.queries.Reach(t.Context(), project("nowhere"), "ana")
			return len(r.Audiences), err
		}},
	} {
		if n, err := p.project(); err != nil || n != 1 {
			t.Errorf("%s reaches %d audiences, %v", p.name, n, err)
		}
	}
}

func TestQueries_StoppedProjection(t *testing.T) {
	h := head{stopped: errors.New("stopped")}
	q := directory.NewQueries(nil, h, h, h, h)
	for name, ask := range map[string]func() error{
		"reach":      func() error { _, err := q.Reach(t.Context(), here, "ana"); return err },
		"standing":   func() error { _, err := q.RecordHeads(t.Context(), here, whos("ana")); return err },
		"open bulks": func() error { _, err := q.OpenBulks(t.Context(), here, whos("ana")); return err },
	} {
		var f *fault.Error
		if err := ask(); !errors.As(err, &f) || f.Code != fault.CodeServiceUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var _ projectiontest.Projector = (*directory.Projector)(nil)
