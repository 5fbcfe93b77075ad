package audience_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/runtest"
)

var (
	project = uuid.MustParse("00000000-0000-4000-8000-0000000000bb")
	at      = time.Date(2026, 5, 12, 12, 0, 0, 0, time.UTC)
)

// codeOf is the code of a fault, "" for none.
func codeOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		t.Fatalf("no fault: %v", err)
	}
	return f.Code
}

func TestSlugs(t *testing.T) {
	for slug, code := range map[string]string{
		"ab": "", "a1": "", "0-9": "", "a--b": "", strings.Repeat("a", 40): "", "project-1": "",
		"": "audience-slug-invalid", "a": "audience-slug-invalid", strings.Repeat("a", 41): "audience-slug-invalid",
		"-a": "audience-slug-invalid", "a-": "audience-slug-invalid", "aB": "audience-slug-invalid", "a_b": "audience-slug-invalid",
		"a b": "audience-slug-invalid", "aé": "audience-slug-invalid", "a\x00": "audience-slug-invalid", "a.b": "audience-slug-invalid",
		"project": "audience-slug-reserved",
	} {
		if got := codeOf(t, audience.CheckSlug(slug)); got != code {
			t.Errorf("%q: %q, want %q", slug, got, code)
		}
	}
}

func TestRules_Limits(t *testing.T) {
	condition := func(o audience.Operator, values ...string) audience.Condition {
		return audience.Condition{Trait: "team", Operator: o, Values: values}
	}
	many := func(n int) []string {
		values := make([]string, n)
		for i := range values {
			values[i] = fmt.Sprint(i)
		}
		return values
	}
	all := func(conditions ...audience.Condition) audience.Rule {
		return audience.Rule{Match: audience.MatchAll, Conditions: conditions}
	}
	for name, c := range map[string]struct {
		rule audience.Rule
		ok   bool
	}{
		"no match":               {audience.Rule{Conditions: all(condition(audience.Exists)).Conditions}, false},
		"another match":          {audience.Rule{Match: "none", Conditions: all(condition(audience.Exists)).Conditions}, false},
		"any":                    {audience.Rule{Match: audience.MatchAny, Conditions: all(condition(audience.Exists)).Conditions}, true},
		"no condition":           {all(), false},
		"20 conditions":          {all(slices.Repeat([]audience.Condition{condition(audience.Exists)}, 20)...), true},
		"21 conditions":          {all(slices.Repeat([]audience.Condition{condition(audience.Exists)}, 21)...), false},
		"no operator":            {all(condition("")), false},
		"another operator":       {all(condition("like", "a")), false},
		"is without a value":     {all(condition(audience.Is)), false},
		"is":                     {all(condition(audience.Is, "a")), true},
		"is with two values":     {all(condition(audience.Is, "a", "b")), false},
		"is not":                 {all(condition(audience.IsNot, "a")), true},
		"is not with two":        {all(condition(audience.IsNot, "a", "b")), false},
		"one of none":            {all(condition(audience.IsOneOf)), false},
		"one of one":             {all(condition(audience.IsOneOf, "a")), true},
		"one of 50":              {all(condition(audience.IsOneOf, many(50)...)), true},
		"one of 51":              {all(condition(audience.IsOneOf, many(51)...)), false},
		"not one of none":        {all(condition(audience.IsNotOneOf)), false},
		"not one of 50":          {all(condition(audience.IsNotOneOf, many(50)...)), true},
		"not one of 51":          {all(condition(audience.IsNotOneOf, many(51)...)), false},
		"exists":                 {all(condition(audience.Exists)), true},
		"exists with a value":    {all(condition(audience.Exists, "a")), false},
		"absent":                 {all(condition(audience.DoesNotExist)), true},
		"absent with a value":    {all(condition(audience.DoesNotExist, "a")), false},
		"no trait":               {all(audience.Condition{Operator: audience.Exists}), false},
		"trait of 200":           {all(audience.Condition{Trait: strings.Repeat("é", 200), Operator: audience.Exists}), true},
		"trait of 201":           {all(audience.Condition{Trait: strings.Repeat("é", 201), Operator: audience.Exists}), false},
		"trait with U+0000":      {all(audience.Condition{Trait: "a\x00", Operator: audience.Exists}), false},
		"value of 2,000":         {all(condition(audience.Is, strings.Repeat("é", 2000))), true},
		"value of 2,001":         {all(condition(audience.Is, strings.Repeat("é", 2001))), false},
		"empty value":            {all(condition(audience.Is, "")), false},
		"value with U+0000":      {all(condition(audience.Is, "\x00")), false},
		"the second is at fault": {all(condition(audience.Exists), condition(audience.Is)), false},
	} {
		want := "audience-rule-invalid"
		if c.ok {
			want = ""
		}
		if got := codeOf(t, c.rule.Check()); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestRules(t *testing.T) {
	all, either := audience.MatchAll, audience.MatchAny
	is := func(trait, value string) audience.Condition {
		return audience.Condition{Trait: trait, Operator: audience.Is, Values: []string{value}}
	}
	ana := map[string]string{"team": "blue", "role": "lead", "empty": ""}
	for name, c := range map[string]struct {
		rule audience.Rule
		want bool
	}{
		"is":                       {audience.Rule{Match: all, Conditions: []audience.Condition{is("team", "blue")}}, true},
		"is, in capitals":          {audience.Rule{Match: all, Conditions: []audience.Condition{is("team", "Blue")}}, false},
		"is, absent":               {audience.Rule{Match: all, Conditions: []audience.Condition{is("town", "blue")}}, false},
		"is not":                   {audience.Rule{Match: all, Conditions: []audience.Condition{{Trait: "team", Operator: audience.IsNot, Values: []string{"red"}}}}, true},
		"is not, the same":         {audience.Rule{Match: all, Conditions: []audience.Condition{{Trait: "team", Operator: audience.IsNot, Values: []string{"blue"}}}}, false},
		"is not, absent":           {audience.Rule{Match: all, Conditions: []audience.Condition{{Trait: "town", Operator: audience.IsNot, Values: []string{"red"}}}}, false},
		"one of":                   {audience.Rule{Match: all, Conditions: []audience.Condition{{Trait: "team", Operator: audience.IsOneOf, Values: []string{"red", "blue"}}}}, true},
		"one of others":            {audience.Rule{Match: all, Conditions: []audience.Condition{{Trait: "team", Operator: audience.IsOneOf, Values: []string{"red"}}}}, false},
		"not one of":               {audience.Rule{Match: all, Conditions: []audience.Condition{{Trait: "team", Operator: audience.IsNotOneOf, Values: []string{"red", "green"}}}}, true},
		"not one of, one of it":    {audience.Rule{Match: all, Conditions: []audience.Condition{{Trait: "team", Operator: audience.IsNotOneOf, Values: []string{"red", "blue"}}}}, false},
		"not one of, absent":       {audience.Rule{Match: all, Conditions: []audience.Condition{{Trait: "town", Operator: audience.IsNotOneOf, Values: []string{"red"}}}}, false},
		"exists":                   {audience.Rule{Match: all, Conditions: []audience.Condition{{Trait: "role", Operator: audience.Exists}}}, true},
		"exists, absent":           {audience.Rule{Match: all, Conditions: []audience.Condition{{Trait: "town", Operator: audience.Exists}}}, false},
		"does not exist":           {audience.Rule{Match: all, Conditions: []audience.Condition{{Trait: "town", Operator: audience.DoesNotExist}}}, true},
		"does not exist, there":    {audience.Rule{Match: all, Conditions: []audience.Condition{{Trait: "team", Operator: audience.DoesNotExist}}}, false},
		"all of two":               {audience.Rule{Match: all, Conditions: []audience.Condition{is("team", "blue"), is("role", "lead")}}, true},
		"all, the last fails":      {audience.Rule{Match: all, Conditions: []audience.Condition{is("team", "blue"), is("role", "member")}}, false},
		"any, the last holds":      {audience.Rule{Match: either, Conditions: []audience.Condition{is("team", "red"), is("role", "lead")}}, true},
		"any of none that hold":    {audience.Rule{Match: either, Conditions: []audience.Condition{is("team", "red"), is("role", "member")}}, false},
		"no conditions at all":     {audience.Rule{Match: all}, false},
		"any of no conditions":     {audience.Rule{Match: either}, false},
		"an operator that is none": {audience.Rule{Match: all, Conditions: []audience.Condition{{Trait: "team", Operator: "like"}}}, false},
	} {
		var m audience.Matcher
		runtest.Must(t, m.Add(uuid.New(), audience.Compile(uuid.Nil, c.rule)))
		if got := len(m.Reached(audience.TraitKeysOf(uuid.Nil, ana))) == 1; got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// audiences is what stands after some events.
func audiences(events ...interface{ EventType() string }) *audience.State {
	s := &audience.State{}
	for _, e := range events {
		s.Evolve(e)
	}
	return s
}

func TestDecidePut(t *testing.T) {
	first, second := uuid.New(), uuid.New()
	name := "The leads"
	leads := &audience.Put{
		ProjectID:  project,
		AudienceID: first,
		Slug:       "leads",
		Name:       "Leads",
		Kind:       audience.KindFixed,
		CreatedAt:  at.Add(-time.Hour),
		PutAt:      at,
	}
	fixed := audience.Draft{Slug: "leads", Kind: audience.KindFixed, HasIdentities: true}
	with := func(d audience.Draft, change func(*audience.Draft)) audience.Draft { change(&d); return d }
	for title, c := range map[string]struct {
		state   *audience.State
		draft   audience.Draft
		code    string
		created bool
		id      uuid.UUID
		name    string
		since   time.Time
	}{
		"create":                           {audiences(), fixed, "", true, second, "leads", at},
		"create with a name":               {audiences(), with(fixed, func(d *audience.Draft) { d.Name = &name }), "", true, second, name, at},
		"replace keeps name, id and birth": {audiences(leads), fixed, "", false, first, "Leads", at.Add(-time.Hour)},
		"replace renames":                  {audiences(leads), with(fixed, func(d *audience.Draft) { d.Name = &name }), "", false, first, name, at.Add(-time.Hour)},
		"a slug that is free again is another audience": {
			audiences(leads, &audience.Removed{AudienceID: first}), fixed, "", true, second, "leads", at,
		},
		"switch with the definition": {
			audiences(leads), audience.Draft{Slug: "leads", Kind: audience.KindRule, HasRule: true}, "", false, first, "Leads", at.Add(-time.Hour),
		},
		"switch without it":      {audiences(leads), audience.Draft{Slug: "leads", Kind: audience.KindRule}, "audience-kind-switch-invalid", false, uuid.Nil, "", at},
		"replace without it":     {audiences(leads), audience.Draft{Slug: "leads", Kind: audience.KindFixed}, "invalid-request", false, uuid.Nil, "", at},
		"create without it":      {audiences(), audience.Draft{Slug: "leads", Kind: audience.KindRule}, "invalid-request", false, uuid.Nil, "", at},
		"rule with fixed":        {audiences(), with(fixed, func(d *audience.Draft) { d.HasRule = true }), "audience-kind-mismatch", false, uuid.Nil, "", at},
		"identities with rule":   {audiences(leads), audience.Draft{Slug: "leads", Kind: audience.KindRule, HasRule: true, HasIdentities: true}, "audience-kind-mismatch", false, uuid.Nil, "", at},
		"the other one's only":   {audiences(leads), audience.Draft{Slug: "leads", Kind: audience.KindRule, HasIdentities: true}, "audience-kind-mismatch", false, uuid.Nil, "", at},
		"no kind":                {audiences(), with(fixed, func(d *audience.Draft) { d.Kind = "" }), "audience-kind-invalid", false, uuid.Nil, "", at},
		"the default one's kind": {audiences(), with(fixed, func(d *audience.Draft) { d.Kind = audience.KindDefault }), "audience-kind-invalid", false, uuid.Nil, "", at},
		"no slug comes first":    {audiences(), with(fixed, func(d *audience.Draft) { d.Slug, d.Kind = "A", "" }), "audience-slug-invalid", false, uuid.Nil, "", at},
		"the default one":        {audiences(), with(fixed, func(d *audience.Draft) { d.Slug = "project" }), "audience-slug-reserved", false, uuid.Nil, "", at},
	} {
		t.Run(title, func(t *testing.T) {
			put, created, err := c.state.Decide(c.draft, project, second, at)
			if got := codeOf(t, err); got != c.code {
				t.Fatalf("%q, want %q", got, c.code)
			}
			if c.code != "" {
				return
			}
			want := audience.Put{
				ProjectID:  project,
				AudienceID: c.id,
				Slug:       "leads",
				Name:       c.name,
				Kind:       c.draft.Kind,
				CreatedAt:  c.since,
				PutAt:      at,
			}
			if created != c.created || put.AudienceID != want.AudienceID || put.Name != want.Name || put.Kind != want.Kind ||
				!put.CreatedAt.Equal(want.CreatedAt) || !put.PutAt.Equal(at) || put.Slug != "leads" || put.ProjectID != project {
				t.Errorf("%+v, created %t", put, created)
			}
		})
	}
}

// many is so many audiences of one rule each, whose definitions have so many bytes together.
func many(count int, bytes int64) *audience.State {
	s := &audience.State{}
	for n := range count {
		put := &audience.Put{
			AudienceID: uuid.New(),
			Slug:       fmt.Sprint("rule-", n),
			Kind:       audience.KindRule,
			RuleBlob:   &blob.Ref{Size: bytes / int64(count)},
		}
		if n == 0 {
			put.RuleBlob.Size += bytes % int64(count)
		}
		s.Evolve(put)
	}
	return s
}

func TestDecidePut_LimitsOfAProject(t *testing.T) {
	const all = limit.AudienceBytes
	for title, c := range map[string]struct {
		state      *audience.State
		slug       string
		definition int64
		code       string
	}{
		"the 1,000th":                      {many(999, 0), "more", 10, ""},
		"the 1,001st":                      {many(1000, 0), "more", 10, "audience-limit-reached"},
		"one of 1,000 replaced":            {many(1000, 0), "rule-7", 10, ""},
		"one of 1,001 replaced":            {many(1001, 0), "rule-7", 10, ""},
		"32 MiB together":                  {many(3, all-10), "more", 10, ""},
		"a byte more":                      {many(3, all-10), "more", 11, "audience-limit-reached"},
		"one replaced makes room":          {many(1, all), "rule-0", all, ""},
		"one replaced by too much":         {many(2, all), "rule-0", all/2 + 1, "audience-limit-reached"},
		"stored beyond, as big as it was":  {many(2, 2*all), "rule-0", all, ""},
		"stored beyond, a byte more":       {many(2, 2*all), "rule-0", all + 1, "audience-limit-reached"},
		"stored beyond, another of 1 byte": {many(2, 2*all), "more", 1, "audience-limit-reached"},
	} {
		_, _, err := c.state.Decide(
			audience.Draft{Slug: c.slug, Kind: audience.KindRule, HasRule: true, Definition: c.definition}, project,
			uuid.New(), at,
		)
		if got := codeOf(t, err); got != c.code {
			t.Errorf("%s: %q, want %q", title, got, c.code)
		}
	}
	// What is removed makes room.
	s := &audience.State{}
	first := uuid.New()
	s.Evolve(&audience.Put{AudienceID: first, Slug: "first", Kind: audience.KindRule, RuleBlob: &blob.Ref{Size: all}})
	s.Evolve(&audience.Removed{AudienceID: first})
	draft := audience.Draft{Slug: "more", Kind: audience.KindRule, HasRule: true, Definition: all}
	if _, _, err := s.Decide(draft, project, uuid.New(), at); err != nil {
		t.Error(err)
	}
}

func TestDefinitionBytes(t *testing.T) {
	for name, c := range map[string]struct {
		put  audience.Put
		want int64
	}{
		"a rule":            {audience.Put{Rule: &audience.Rule{Match: audience.MatchAll, Conditions: []audience.Condition{{Trait: "té", Values: []string{"a", "bc"}}}}}, 6},
		"a rule in a blob":  {audience.Put{RuleBlob: &blob.Ref{Size: 7}}, 7},
		"members":           {audience.Put{Members: make([]uuid.UUID, 3)}, 96},
		"members in a blob": {audience.Put{MembersBlob: &blob.Ref{Size: 3 * 16}}, 96},
		"nobody":            {audience.Put{Kind: audience.KindFixed}, 0},
		"as many as can be": {audience.Put{MembersBlob: &blob.Ref{Size: limit.AudienceMembers * 16}}, audience.MembersBytes(limit.AudienceMembers)},
	} {
		if got := c.put.DefinitionBytes(); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}

func TestDecide_RemoveAndRecompute(t *testing.T) {
	id := uuid.New()
	put := &audience.Put{AudienceID: id, Slug: "leads", Kind: audience.KindRule}
	for title, c := range map[string]struct {
		state *audience.State
		slug  string
		code  string
	}{
		"standing":    {audiences(put), "leads", ""},
		"unknown":     {audiences(put), "lead", "not-found"},
		"removed":     {audiences(put, &audience.Removed{AudienceID: id}), "leads", "not-found"},
		"the default": {audiences(put), "project", "audience-slug-reserved"},
		"no slug":     {audiences(put), "Leads", "audience-slug-invalid"},
	} {
		t.Run(title, func(t *testing.T) {
			removed, err := c.state.Remove(c.slug, project, at)
			if got := codeOf(t, err); got != c.code ||
				c.code == "" && (removed != audience.Removed{ProjectID: project, AudienceID: id, RemovedAt: at}) {
				t.Errorf("%+v, %q", removed, got)
			}
			counted, err := c.state.Recompute(c.slug, project, at)
			if got := codeOf(t, err); got != c.code ||
				c.code == "" && (counted != audience.Recomputed{ProjectID: project, AudienceID: id, RecomputedAt: at}) {
				t.Errorf("%+v, %q", counted, got)
			}
		})
	}
}

func TestState_FindAndClone(t *testing.T) {
	id, later := uuid.New(), uuid.New()
	s := audiences(&audience.Put{AudienceID: id, Slug: "leads"}, &audience.Recomputed{AudienceID: id},
		&audience.Removed{AudienceID: id}, &audience.Put{AudienceID: later, Slug: "leads"}, &audience.Removed{AudienceID: id})
	if found, ok := s.Find("leads"); s.Events != 5 || !ok || found.ID != later {
		t.Errorf("%d events, %+v, %t", s.Events, found, ok)
	}
	c := s.Clone()
	c.Evolve(&audience.Removed{AudienceID: later})
	if _, ok := s.Find("leads"); !ok {
		t.Error("the copy shares its maps")
	}
	if _, ok := c.Find("leads"); ok || c.Events != 6 {
		t.Error("the copy does not go on")
	}
}
