package condition_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/condition"
)

// Every field of the remarks is filled by the conditions of its name, with the text for operators only if they read.
func TestList_RemarksAreByName(t *testing.T) {
	fields := reflect.TypeFor[client.Remarks]()
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		list := condition.List{{
			Name: name, State: condition.Remark, Words: "words", Private: "private", Count: 2,
			SetAside: &client.SetAside{Position: 7},
		}}
		for private, text := range map[bool]string{false: "words", true: "private"} {
			var want client.Remarks
			switch field := reflect.ValueOf(&want).Elem().Field(i); field.Interface().(type) {
			case string:
				field.SetString(text)
			case []string:
				field.Set(reflect.ValueOf([]string{text}))
			case int:
				field.SetInt(2)
			case []client.SetAside:
				field.Set(reflect.ValueOf([]client.SetAside{{Position: 7}}))
			}
			if got := list.Remarks(private); reflect.DeepEqual(want, client.Remarks{}) || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

func TestList_Views(t *testing.T) {
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	list := condition.List{
		{Name: "projection", Of: "trace", State: condition.NotReady, Words: "stopped", Position: 7, Since: since, Cause: "hidden"},
		{Name: condition.ServersDown, Of: "model", State: condition.Remark, Words: "it cannot be used"},
		{Name: condition.StreamsDamaged, State: condition.Remark, Count: 3},
	}
	part := client.NotReady{Part: "projection trace", Reason: "stopped", Position: 7, Since: since}
	if got := list.NotReady(false); !reflect.DeepEqual(got, []client.NotReady{part}) {
		t.Errorf("clients read %+v", got)
	}
	if got := list.NotReady(true); got[0].Cause != "hidden" {
		t.Errorf("operators read %+v", got)
	}
	if list.IsReady() || !list[1:].IsReady() || !(condition.List{}).IsReady() {
		t.Error("only a part that is not ready makes a service not ready")
	}
	if !list.Has(condition.ServersDown, "model") || list.Has(condition.ServersDown, "embeddings") {
		t.Error("a server is found by its label")
	}
	if n, one := list.Count(condition.StreamsDamaged), list.Count(condition.ServersDown); n != 3 || one != 1 {
		t.Errorf("counted %d and %d", n, one)
	}
}

// A condition lasts since it was first seen, whatever it is caused by, and begins again once it ended.
func TestWatch_Since(t *testing.T) {
	var w condition.Watch
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	one := func(cause string) condition.List {
		return condition.List{{Name: "postgres", State: condition.NotReady, Cause: cause}}
	}
	for n, step := range []struct {
		list         condition.List
		since        int
		began, ended int
	}{
		{one("refused"), 0, 1, 0},
		{one("refused"), 0, 0, 0},
		{one("reset"), 0, 1, 0},
		{nil, 0, 0, 1},
		{nil, 0, 0, 0},
		{one("refused"), 5, 1, 0},
		{append(one("refused"), condition.Condition{Name: "projection", Of: "trace"}), 5, 1, 0},
	} {
		began, ended := w.Note(start.Add(time.Duration(n)*time.Second), step.list)
		if len(began) != step.began || len(ended) != step.ended {
			t.Errorf("step %d: %v began, %v ended", n, began, ended)
		}
		if want := start.Add(time.Duration(step.since) * time.Second); len(step.list) > 0 && !step.list[0].Since.Equal(want) {
			t.Errorf("step %d: since %v", n, step.list[0].Since)
		}
	}
	known := condition.List{{Name: "writesRefused", Since: start}}
	if w.Note(start.Add(time.Hour), known); !known[0].Since.Equal(start) {
		t.Errorf("a time that is known is replaced by %v", known[0].Since)
	}
}
