package directory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/directory"
)

// members lists the members of an audience in pages, forth and back, which must agree.
func (w *fixture) members(slug string, limit int) (list []directory.Member) {
	w.Helper()
	read := func(l directory.MemberListing) directory.Members {
		w.Helper()
		l.Limit = limit
		page, ok, err := w.queries.Members(w.Context(), here, slug, l)
		if err != nil || !ok || len(page.List) > limit {
			w.Fatalf("%d members of %s: %v, %v", len(page.List), slug, ok, err)
		}
		return page
	}
	var pages []directory.Members
	for l, next := (directory.MemberListing{}), true; next; {
		page := read(l)
		pages, list = append(pages, page), append(list, page.List...)
		if page.Previous != (len(pages) > 1) {
			w.Errorf("page %d of %s: previous %v", len(pages), slug, page.Previous)
		}
		next, l.After = page.Next, &page.End
	}
	var back []directory.Member
	for l, previous := (directory.MemberListing{Before: &pages[len(pages)-1].Start}), len(pages) > 1; previous; {
		page := read(l)
		back = append(slices.Clone(page.List), back...)
		previous, l.Before = page.Previous, &page.Start
	}
	if forth := list[:len(list)-len(pages[len(pages)-1].List)]; fmt.Sprint(back) != fmt.Sprint(forth) {
		w.Errorf("members of %s by %d, back:\n%v\nforth:\n%v", slug, limit, back, forth)
	}
	return list
}

// since shows since when members are ones, by their names: "~" if they may have been before.
func since(list []directory.Member) map[string]string {
	shown := map[string]string{}
	for _, m := range list {
		at := fmt.Sprint(int(m.Since.Sub(noon) / time.Second))
		if !m.Exact {
			at = "~" + at
		}
		shown[m.Identity] = at
	}
	return shown
}

// createdAt sets when what the last event is about was created.
func (w *fixture) createdAt(second int) {
	at := noon.Add(time.Duration(second) * time.Second)
	switch e := w.Facts[len(w.Facts)-1].Event.(type) {
	case *identity.TraitsReplaced:
		e.Record.CreatedAt = at
	case *audience.Put:
		e.CreatedAt = at
	default:
		w.Fatalf("no creation in %T", e)
	}
}

func TestMembers_SinceWhen(t *testing.T) {
	w := newFixture(t)
	red, blue := traits{"team": "red"}, traits{"team": "blue"}
	steps := []func(){ // each writes one event, at the second of its place, from 1
		func() { w.put("ana", red) },
		func() { w.put("ben", red) },
		func() { w.put("cid", blue) },
		func() { w.rule("team", audience.MatchAll, is("team", "red")) },
		func() { w.fixed("list", "ana", "ben", "dee") },
		func() { w.put("dee", red) },
		func() { w.put("cid", red); w.createdAt(3) },
		func() { w.fixed("list", "ana", "dee") },
		func() { w.fixed("list", "ana", "ben", "dee") },
		func() { w.remove("ana") },
		func() { w.put("ana", blue) },
		func() { w.fixed("list", "ana", "ben") },
		func() { w.rule("late", audience.MatchAny, is("team", "red")) },
		func() { w.rule("late", audience.MatchAny, is("team", "red"), is("team", "blue")); w.createdAt(13) },
	}
	for n, step := range steps {
		if step(); n%3 == 0 { // in pages of several events
			w.apply()
		}
	}
	w.apply()
	for slug, want := range map[string]map[string]string{
		"list": {"ana": "12", "ben": "9"},
		"team": {"ben": "4", "cid": "7", "dee": "6"},
		"late": {"ana": "14", "ben": "13", "cid": "13", "dee": "13"},
	} {
		for limit := range 4 {
			if got := since(w.members(slug, limit+1)); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s since %v, want %v", slug, got, want)
			}
		}
	}
	w.judgesLikeRecall("list", "team", "late")
	if _, ok, err := w.queries.Members(t.Context(), project("there"), "list", directory.MemberListing{Limit: 1}); ok || err != nil {
		t.Errorf("members in another project: %v, %v", ok, err)
	}
}

// judgesLikeRecall fails unless members, judgements and the reach of recall agree.
func (w *fixture) judgesLikeRecall(slugs ...string) {
	w.Helper()
	for _, slug := range slugs {
		members := since(w.members(slug, 100))
		for _, name := range []string{"ana", "ben", "cid", "dee", "unheard of"} {
			j, err := w.queries.Judge(w.Context(), here, name, id(slug))
			if err != nil || j.Audience == nil || j.Audience.Slug != slug {
				w.Fatal(j, err)
			}
			reach, err := w.queries.Reach(w.Context(), here, name)
			runtest.Must(w, err)
			of, more, err := w.queries.Memberships(w.Context(), here, name)
			if err != nil || more {
				w.Fatal(more, err)
			}
			is := func(j directory.Judgement) bool { return j.Audience.Slug == slug }
			if among := slices.ContainsFunc(of, is); among != j.IsMember {
				w.Errorf("%s in %s: judged %v, among its memberships %v", name, slug, j.IsMember, among)
			}
			_, listed := members[name]
			if reached := slices.Contains(reach.Audiences, id(slug)); j.IsMember != reached || listed != reached {
				w.Errorf("%s in %s: recall %v, judged %v, listed %v", name, slug, reached, j.IsMember, listed)
			}
			if j.IsMember && fmt.Sprint(since([]directory.Member{{Identity: name, Since: j.Since, Exact: j.Exact}})) !=
				fmt.Sprint(map[string]string{name: members[name]}) {
				w.Errorf("%s in %s: judged since %v (%v), listed since %s", name, slug, j.Since, j.Exact, members[name])
			}
		}
	}
}

func TestJudge(t *testing.T) {
	w := newFixture(t, "there")
	w.put("ana", traits{"team": "red", "site": "Oslo"})
	w.rule("both", audience.MatchAll, is("team", "red"), is("site", "Rome"),
		audience.Condition{Trait: "grade", Operator: audience.DoesNotExist})
	w.apply()
	j, err := w.queries.Judge(t.Context(), here, "ana", id("both"))
	if err != nil || !j.HasRecord || j.IsMember || j.Match != audience.MatchAll || len(j.Conditions) != 3 {
		t.Fatalf("judged %+v, %v", j, err)
	}
	for n, want := range []struct {
		holds bool
		value string
	}{{true, "red"}, {false, "Oslo"}, {true, "none"}} {
		value := "none"
		if j.Conditions[n].Value != nil {
			value = *j.Conditions[n].Value
		}
		if j.Conditions[n].Holds != want.holds || value != want.value {
			t.Errorf("condition %d: %+v", n, j.Conditions[n])
		}
	}
	for what, c := range map[string]struct {
		name, of, slug    string
		record, audiences bool
	}{
		"no record":       {"ben", "both", "here", false, true},
		"no audience":     {"ana", "gone", "here", true, false},
		"another project": {"ana", "both", "there", false, false},
	} {
		j, err := w.queries.Judge(t.Context(), project(c.slug), c.name, id(c.of))
		if err != nil || j.IsMember || j.HasRecord != c.record || (j.Audience != nil) != c.audiences {
			t.Errorf("%s: %+v, %v", what, j, err)
		}
	}
}

// A list of members that match a rule looks at so many identities and no more.
func TestMembers_BoundOfAPage(t *testing.T) {
	w := newFixture(t)
	for n := range 3 * directory.MatchSlice {
		w.put(fmt.Sprint("person ", n), traits{"team": fmt.Sprint(n % 2000)})
	}
	w.rule("team", audience.MatchAll, is("team", "7"))
	w.apply()
	w.queries.SetMatched(directory.MatchSlice)
	if got := len(w.members("team", 100)); got != 7 {
		t.Errorf("%d members, want 7", got)
	}
	page, _, err := w.queries.Members(t.Context(), here, "team", directory.MemberListing{Limit: 100})
	if err != nil || !page.Next || len(page.List) == 7 {
		t.Errorf("the first page: %+v, %v", page, err)
	}
}

func TestAudienceHeads_BothWays(t *testing.T) {
	w := newFixture(t, "there")
	w.put("ana", traits{"team": "red"})
	var want []string
	for n := range 5 {
		w.rule(fmt.Sprint("rule-", n), audience.MatchAll, is("team", "red"))
		want = append(want, fmt.Sprint("rule-", n))
	}
	w.fixed("list", "ana")
	w.apply()
	for limit := 1; limit < 7; limit++ {
		var slugs []string
		var last directory.AudienceHeads
		for l, next := (directory.AudienceListing{Prefix: "rule", Limit: limit}), true; next; {
			page, err := w.queries.AudienceHeads(t.Context(), here, l)
			if err != nil || page.Previous != (l.After != "") {
				t.Fatal(page.Previous, err)
			}
			for _, a := range page.List {
				slugs = append(slugs, a.Slug)
			}
			last, next, l.After = page, page.Next, page.List[len(page.List)-1].Slug
		}
		w.want(fmt.Sprint("audiences by ", limit), slugs, want)
		page, err := w.queries.AudienceHeads(t.Context(), here,
			directory.AudienceListing{Prefix: "rule", Limit: limit, Before: last.List[0].Slug})
		if before := len(want) - len(last.List); err != nil || len(page.List) != min(limit, before) || !page.Next ||
			page.Previous != (before > limit) || before > 0 && page.List[len(page.List)-1].Slug != want[before-1] {
			t.Errorf("before the last page by %d: %+v, %v", limit, page, err)
		}
	}
	list, ok, err := w.queries.AudienceHead(t.Context(), here, "list")
	if err != nil || !ok || list.Members != 1 || list.Kind != audience.KindFixed || list.Rule != nil || list.ID != id("list") {
		t.Errorf("the list: %+v, %v, %v", list, ok, err)
	}
	rule, _, err := w.queries.AudienceHead(t.Context(), here, "rule-3")
	if err != nil || rule.Members != 1 || rule.Rule == nil || rule.Counting {
		t.Errorf("the rule: %+v, %v", rule, err)
	}
	known, err := w.queries.KnownAudiences(t.Context(), here, []string{"list", "rule-3", "none"})
	if err != nil || len(known) != 2 || !known["list"] || !known["rule-3"] {
		t.Errorf("known are %v, %v", known, err)
	}
	if known, err := w.queries.KnownAudiences(t.Context(), project("there"), []string{"list"}); err != nil || len(known) > 0 {
		t.Errorf("known in another project: %v, %v", known, err)
	}
	if _, ok, err := w.queries.AudienceHead(t.Context(), project("there"), "list"); ok || err != nil {
		t.Errorf("the list in another project: %v, %v", ok, err)
	}
}

func TestPreviewRule(t *testing.T) {
	w := newFixture(t, "there")
	for n := range 50 {
		w.put(fmt.Sprint("person ", n), traits{"team": fmt.Sprint(n % 2)})
	}
	w.put("ana", traits{"team": "red"})
	w.apply()
	preview := func(r audience.Rule) directory.RulePreview {
		t.Helper()
		p, err := w.queries.PreviewRule(t.Context(), here, r)
		runtest.Must(t, err)
		return p
	}
	rule := audience.Rule{Match: audience.MatchAll, Conditions: []audience.Condition{is("team", "1")}}
	if p := preview(rule); p.Members != 25 || len(p.Sample) != 20 || p.Looked != 51 || p.More {
		t.Errorf("of many: %+v", p)
	}
	rule.Conditions[0].Operator = audience.IsNotOneOf
	rule.Conditions[0].Values = []string{"0", "1"}
	if p := preview(rule); p.Members != 1 || !slices.Equal(p.Sample, []string{"ana"}) {
		t.Errorf("of one: %+v", p)
	}
	before := audience.Rule{Match: audience.MatchAll, Conditions: []audience.Condition{is("team", "1")}}
	after := audience.Rule{Match: audience.MatchAny, Conditions: []audience.Condition{is("team", "0"), is("team", "red")}}
	p, err := w.queries.PreviewChange(t.Context(), here, &before, after)
	if err != nil || p.Members != 26 || p.Gains != 26 || p.Losses != 25 || len(p.Gained) != 20 || len(p.Lost) != 20 {
		t.Errorf("of a change: %+v, %v", p, err)
	}
	after = audience.Rule{Match: audience.MatchAny, Conditions: []audience.Condition{is("team", "1"), is("team", "red")}}
	p, err = w.queries.PreviewChange(t.Context(), here, &before, after)
	if err != nil || p.Members != 26 || p.Losses != 0 || !slices.Equal(p.Gained, []string{"ana"}) {
		t.Errorf("of a wider rule: %+v, %v", p, err)
	}
	w.queries.SetPreviewed(10)
	if p := preview(rule); p.Looked != 10 || !p.More {
		t.Errorf("within 10: %+v", p)
	}
	if p, err := w.queries.PreviewRule(t.Context(), project("there"), rule); err != nil || p.Looked != 0 || p.More {
		t.Errorf("of another project: %+v, %v", p, err)
	}
	if _, err := w.queries.PreviewRule(t.Context(), here, audience.Rule{}); err == nil {
		t.Error("a rule without conditions is previewed")
	}
}

// The private audience of a record is reached by that record alone: not by others, and not by a later record of the
// same name.
func TestReach_Private(t *testing.T) {
	w := newFixture(t, "there")
	born := w.now()
	w.appear("ana")
	w.put("ben", traits{"team": "red"})
	w.fixed("a", "ana", "ben")
	w.apply()
	first := w.private("ana")
	reaches := func(name string, want bool) {
		t.Helper()
		reach, err := w.queries.Reach(t.Context(), here, name)
		runtest.Must(t, err)
		if slices.Contains(reach.Audiences, first) != want {
			t.Errorf("%s reaches it: %t", name, !want)
		}
	}
	names := func(project auth.Project, of uuid.UUID, slug, identity string) {
		t.Helper()
		gotSlug, gotIdentity, err := w.queries.Readers(t.Context(), project, of)
		if err != nil || gotSlug != slug || gotIdentity != identity {
			t.Errorf("readers %q, %q, %v, want %q, %q", gotSlug, gotIdentity, err, slug, identity)
		}
	}
	reaches("ana", true)
	reaches("ben", false)
	reaches("eve", false)
	names(here, first, "", "ana")
	names(here, id("a"), "a", "")
	names(here, id("nothing"), "", "")
	names(project("there"), first, "", "")

	changed := w.record("ana", traits{"team": "blue"})
	changed.CreatedAt = born
	w.Append(stream.Name(stream.Identity, who("ana")), &identity.TraitsReplaced{ProjectID: here.ID, Record: changed})
	w.apply()
	reaches("ana", true)

	w.remove("ana")
	w.apply()
	reaches("ana", false)
	names(here, first, "", "")
	w.put("ana", traits{"team": "blue"})
	w.apply()
	reaches("ana", false)
	names(here, first, "", "")
	if w.private("ana") == first {
		t.Error("the record that was made again has the audience of before")
	}
}

// Whose private audience it is decides who may read it, and no project lists it.
func TestJudge_Private(t *testing.T) {
	w := newFixture(t)
	w.appear("ana")
	w.appear("ben")
	w.apply()
	for name, member := range map[string]bool{"ana": true, "ben": false, "eve": false} {
		j, err := w.queries.Judge(t.Context(), here, name, w.private("ana"))
		if err != nil || j.IsMember != member || j.PrivateTo != "ana" || j.Audience != nil {
			t.Errorf("%s: %+v, %v", name, j, err)
		}
	}
	list, _, err := w.queries.Memberships(t.Context(), here, "ana")
	if err != nil || len(list) != 0 {
		t.Errorf("ana belongs to %+v, %v", list, err)
	}
}
