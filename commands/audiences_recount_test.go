package commands_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
)

// The put of a rule and a recompute answer once the members are counted; recall shows the change before.
func TestAudiences_AnswerAfterTheRecount(t *testing.T) {
	w, waited := newFixture(t), &waits{}
	config := w.config
	config.Waiter, config.FollowUps = waited, waited
	w.Service = commands.New(config)
	in := ruleOf("blue", audience.Condition{Trait: "team", Operator: audience.Is, Values: []string{"blue"}})
	made := w.put(in)
	want := []string{"directory", "directory recount " + made.ID.String()}
	if got := waited.take(); !slices.Equal(got, want) {
		t.Errorf("the put waited for %q, want %q", got, want)
	}
	if _, err := w.RecomputeAudience(t.Context(), w.call, "blue"); err != nil {
		t.Fatal(err)
	}
	if got := waited.take(); !slices.Equal(got, want) {
		t.Errorf("the recompute waited for %q, want %q", got, want)
	}
	waited.late = errors.New("late")
	_, err := w.PutAudience(t.Context(), w.call, in)
	wantFault(t, err, fault.CodeServiceUnavailable)
	if f, _ := errors.AsType[*fault.Error](err); f == nil || f.Data["committed"] != true {
		t.Errorf("a put whose recount is late: %v, want one that is committed", err)
	}
}
