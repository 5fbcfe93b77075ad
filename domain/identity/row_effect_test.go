package identity

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var noon = time.Date(2026, 5, 12, 12, 0, 0, 0, time.UTC)

func after(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

func inline(pairs ...string) Traits {
	t := Traits{Inline: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		t.Inline[pairs[i]] = pairs[i+1]
	}
	return t
}

func recordAt(created, updated int, origin Origin, traits Traits) Record {
	return Record{Identity: "ana", Traits: traits, Origin: origin, CreatedAt: after(created), UpdatedAt: after(updated)}
}

// A row of a bulk write that was committed at position 50, a minute after noon.
func TestPlace(t *testing.T) {
	old := recordAt(-60, -60, OriginIngest, inline("old", "1"))
	replaced := TraitsReplaced{Record: recordAt(2, 2, OriginAPI, inline("put", "1"))}
	merged := TraitsMerged{
		Patch:  Patch{Set: map[string]string{"patch": "1"}},
		Record: recordAt(2, 2, OriginAPI, inline("patch", "1")),
	}
	for name, c := range map[string]struct {
		base    *Record
		stored  []Effect
		status  string
		history bool
		want    *Record
	}{
		"new":      {nil, nil, Created, false, ptr(recordAt(1, 1, OriginAPI, inline("row", "1")))},
		"replaces": {&old, nil, Updated, false, ptr(recordAt(-60, 1, OriginIngest, inline("row", "1")))},
		"appeared below": {
			nil,
			[]Effect{{40, &Appeared{Identity: "ana", Origin: OriginAudience, AppearedAt: after(0)}}},
			Updated, false,
			ptr(recordAt(0, 1, OriginAudience, inline("row", "1"))),
		},
		"removed below":             {&old, []Effect{{40, &Removed{}}, {45, &Cleared{}}}, Created, false, ptr(recordAt(1, 1, OriginAPI, inline("row", "1")))},
		"cut off above":             {&old, []Effect{{40, &Removed{}}, {60, &Cleared{}}}, Created, false, ptr(recordAt(1, 1, OriginAPI, inline("row", "1")))},
		"replaced above":            {nil, []Effect{{60, &replaced}}, Created, true, ptr(recordAt(1, 2, OriginAPI, inline("put", "1")))},
		"merged above":              {nil, []Effect{{60, &merged}}, Created, true, ptr(recordAt(1, 2, OriginAPI, inline("row", "1", "patch", "1")))},
		"appeared above":            {nil, []Effect{{60, &Appeared{Identity: "ana", Origin: OriginIngest, AppearedAt: after(2)}}}, Created, true, ptr(recordAt(1, 2, OriginAPI, inline("row", "1")))},
		"removed above":             {&old, []Effect{{60, &Removed{}}}, Updated, true, nil},
		"made again above":          {&old, []Effect{{60, &Removed{}}, {70, &replaced}}, Updated, true, &replaced.Record},
		"another row below":         {nil, []Effect{{30, &BulkRowApplied{Record: ptr(recordAt(0, 0, OriginAPI, inline("earlier", "1")))}}}, Updated, false, ptr(recordAt(0, 1, OriginAPI, inline("row", "1")))},
		"another row above":         {nil, []Effect{{60, &BulkRowApplied{Record: ptr(recordAt(2, 2, OriginAPI, inline("later", "1")))}}}, Created, true, ptr(recordAt(1, 2, OriginAPI, inline("later", "1")))},
		"late row below a removal":  {&old, []Effect{{60, &Removed{}}, {30, &BulkRowApplied{History: true}}}, Updated, true, nil},
		"late row that came before": {nil, []Effect{{60, &replaced}, {30, &BulkRowApplied{History: true, Record: &replaced.Record}}}, Updated, true, ptr(recordAt(2, 2, OriginAPI, inline("put", "1")))},
	} {
		t.Run(name, func(t *testing.T) {
			p := ResolveRow(c.base, c.stored, 50)
			if p.Status != c.status || p.History != c.history {
				t.Errorf("%s, history %t", p.Status, p.History)
			}
			traits := map[string]string{"row": "1"}
			for _, patch := range p.Patches {
				traits = patch.Apply(traits)
			}
			got := p.Record(Row{Identity: "ana", Traits: traits}, Traits{Inline: traits}, OriginAPI, after(1))
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestPatch_Applies(t *testing.T) {
	before := map[string]string{"a": "1", "b": "2"}
	got := Patch{Set: map[string]string{"b": "3", "c": "4"}, Removed: []string{"a", "never"}}.Apply(before)
	if diff := cmp.Diff(map[string]string{"b": "3", "c": "4"}, got); diff != "" {
		t.Error(diff)
	}
	if len(before) != 2 || before["b"] != "2" {
		t.Errorf("what was handed in is %v", before)
	}
}

// Every event carries the record after it, except the two that do not change it.
func TestEvolve(t *testing.T) {
	standing := recordAt(0, 0, OriginAPI, inline("a", "1"))
	for name, e := range map[string]interface{ EventType() string }{
		"appeared": &Appeared{Identity: "ana", AppearedAt: after(5)}, "cleared": &Cleared{},
	} {
		if got := Evolve(&standing, e); got != &standing || IsSelfContained(e) {
			t.Errorf("%s leaves %+v, settles %t", name, got, IsSelfContained(e))
		}
	}
	if Evolve(&standing, &Removed{}) != nil || !IsSelfContained(&Removed{}) {
		t.Error("a removal leaves a record")
	}
	if got := Evolve(nil, &Appeared{Identity: "ana", Origin: OriginIngest, AppearedAt: after(5)}); got == nil ||
		got.Origin != OriginIngest ||
		!got.CreatedAt.Equal(after(5)) {
		t.Errorf("appeared as %+v", got)
	}
}
