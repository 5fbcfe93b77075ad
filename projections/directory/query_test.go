package directory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/directory"
)

// names lists identities page by page. It fails if a page is too long or More is wrong.
func (w *fixture) names(p auth.Project, l directory.Listing) (names []string) {
	w.Helper()
	for {
		page, err := w.queries.Identities(w.Context(), p, l)
		runtest.Must(w, err)
		for _, i := range page.List {
			names = append(names, i.Identity)
			if i.Audiences != nil {
				w.Errorf("the list reports the audiences of %s", i.Identity)
			}
		}
		if len(page.List) > l.Limit || page.More && len(page.List) < l.Limit || (page.End == nil) != (len(page.List) == 0) {
			w.Fatalf("a page of %d for a limit of %d, more %v, end %v", len(page.List), l.Limit, page.More, page.End)
		}
		if !page.More {
			return names
		}
		l.After = page.End
	}
}

func (w *fixture) want(what string, got, want []string) {
	w.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestIdentities_ByTrait(t *testing.T) {
	w := newFixture(t, "there")
	w.put("ana", traits{"team": "red", "role": "x"})
	w.put("ben", traits{"team": "blue"})
	w.put("cid", nil)
	w.put("dee", traits{"team": "red"})
	broad := traits{"team": "red"}
	for n := range 1000 {
		broad[fmt.Sprint("trait ", n)] = "v"
	}
	w.put("eve", broad) // one trait more than table marks takes
	delete(broad, "trait 0")
	narrow := traits{}
	for key, value := range broad {
		narrow[key] = value
	}
	w.put("fay", narrow)
	long := traits{"team": "red"} // few traits with much text
	for n := range 150 {
		long[fmt.Sprint("trait ", n)] = strings.Repeat("é", 2000)
	}
	record := w.record("gus", nil)
	record.Traits.Blob = w.blobs.write("long", long)
	w.Append(stream.Name(stream.Identity, who("gus")), &identity.TraitsReplaced{ProjectID: here.ID, Record: record})
	w.apply()
	red := "red"
	for _, c := range []struct {
		name string
		l    directory.Listing
		want []string
	}{
		{"all", directory.Listing{}, []string{"gus", "fay", "eve", "dee", "cid", "ben", "ana"}},
		{"with a trait", directory.Listing{Key: "team"}, []string{"gus", "fay", "eve", "dee", "ben", "ana"}},
		{"with its value", directory.Listing{Key: "team", Value: &red}, []string{"gus", "fay", "eve", "dee", "ana"}},
		{"with another trait", directory.Listing{Key: "role"}, []string{"ana"}},
		{"of the many", directory.Listing{Key: "trait 7"}, []string{"gus", "fay", "eve"}},
		{"of the many, another value", directory.Listing{Key: "trait 7", Value: &red}, nil},
		{"with a value as key", directory.Listing{Key: "red"}, nil},
		{"with none", directory.Listing{Key: "unheard of"}, nil},
	} {
		for _, c.l.Limit = range []int{1, 2, 3, 7, 8, 1000} {
			w.want(fmt.Sprint(c.name, " in pages of ", c.l.Limit), w.names(here, c.l), c.want)
		}
		w.want(c.name+", of the neighbour",
			w.names(project("there"), directory.Listing{Key: c.l.Key, Value: c.l.Value, Limit: 10}), nil)
	}

	w.put("eve", traits{"team": "blue"}) // created again: now the newest
	w.remove("ana")
	w.apply()
	w.want("behind a change and a removal", w.names(here, directory.Listing{Key: "team", Limit: 10}),
		[]string{"eve", "gus", "fay", "dee", "ben"})
	w.want("red behind a change and a removal", w.names(here, directory.Listing{Key: "team", Value: &red, Limit: 10}),
		[]string{"gus", "fay", "dee"})
}

// show finds an identity that must exist.
func (w *fixture) show(name string) directory.Identity {
	w.Helper()
	i, ok, err := w.queries.Identity(w.Context(), here, name)
	if err != nil || !ok {
		w.Fatalf("identity %s: %v, %v", name, ok, err)
	}
	return i
}

func TestIdentity_Audiences(t *testing.T) {
	w := newFixture(t, "there")
	w.put("ana/1 é", traits{"team": "red", "note": "<&>\"\u2028"})
	w.fixed("zoo", "ana/1 é")
	w.rule("all", audience.MatchAll, audience.Condition{Trait: "team", Operator: audience.Exists})
	w.rule("none", audience.MatchAll, is("team", "blue"))
	w.apply()
	i := w.show("ana/1 é")
	if got := decode[traits](i.Traits); !cmp.Equal(
		got, traits{"team": "red", "note": "<&>\"\u2028"},
	) || i.Origin != "api" || i.LastSeenAt != nil {
		t.Errorf("shown as %+v with %v", i, got)
	}
	w.want("audiences", i.Audiences, []string{"all", "zoo"})
	for _, c := range []struct {
		name    string
		project auth.Project
	}{{"ana/1 é", project("there")}, {"ana", here}, {"Ana/1 é", here}, {"ana/1 é", project("nowhere")}} {
		if _, ok, err := w.queries.Identity(t.Context(), c.project, c.name); ok || err != nil {
			t.Errorf("identity %s of %s: %v, %v", c.name, c.project.Slug, ok, err)
		}
	}
}

// moving is a pending recall that is flushed to the tables while it is read.
type moving func()

func (m moving) PendingSeen(context.Context, auth.Project, []uuid.UUID) (map[uuid.UUID]time.Time, error) {
	m()
	return map[uuid.UUID]time.Time{}, nil
}

// A recall that is no longer pending is in the tables: one of the two reads finds it, whenever it
// is flushed.
func TestLastSeen_WhileFlushed(t *testing.T) {
	for name, ask := range map[string]func(*fixture) (*time.Time, error){
		"one": func(w *fixture) (*time.Time, error) { return w.show("ana").LastSeenAt, nil },
		"the list": func(w *fixture) (*time.Time, error) {
			page, err := w.queries.Identities(w.Context(), here, directory.Listing{Limit: 10})
			if err != nil || len(page.List) != 1 {
				w.Fatalf("%v, %v", page, err)
			}
			return page.List[0].LastSeenAt, nil
		},
		"the time alone": func(w *fixture) (*time.Time, error) {
			return w.queries.LastSeen(w.Context(), here, who("ana"), noon)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.appear("ana")
			w.apply()
			at := noon.Add(time.Hour)
			w.queries = directory.NewQueries(w.db, head{}, head{}, head{}, moving(func() {
				w.Append(stream.UsageName(here.ID, "2026-11"),
					&metering.Charged{ProjectID: here.ID, Seen: []metering.Seen{{IdentityID: who("ana"), At: at}}})
				w.apply()
			}))
			got, err := ask(w)
			if diff := cmp.Diff(&at, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// scopes are the memory counts of audiences, seen the pending recalls.
type scopes map[uuid.UUID]int64

func (s scopes) Scopes(context.Context, auth.Project) (map[uuid.UUID]int64, error) { return s, nil }

type seen map[uuid.UUID]time.Time

func (s seen) PendingSeen(context.Context, auth.Project, []uuid.UUID) (map[uuid.UUID]time.Time, error) {
	return s, nil
}

func TestAudiences_Counts(t *testing.T) {
	w := newFixture(t, "there")
	for _, name := range []string{"b", "a", "é", "c"} {
		w.put(name, traits{"team": name})
	}
	w.fixed("list", "é", "b", "nobody", "a")
	w.rule("rule", audience.MatchAny, is("team", "a"), is("team", "b"))
	w.rule("empty-rule", audience.MatchAll, is("team", "z"))
	w.fixed("empty-list")
	w.apply()
	w.queries = directory.NewQueries(w.db, head{}, head{}, scopes{uuid.Nil: 7, id("list"): 3}, head{})
	type shown struct {
		Slug, Kind        string
		Members, Memories int64
		Nobody            bool
		Identities        []string
		Conditions        int
	}
	show := func(a directory.Audience) shown {
		s := shown{a.Slug, string(a.Kind), a.MemberCount, a.MemoryCount, a.ReachesNobody, a.Identities, 0}
		if a.Rule != nil {
			s.Conditions = len(decode[audience.Rule](a.Rule).Conditions)
		}
		return s
	}
	want := []shown{
		{"project", "default", 4, 7, false, nil, 0},
		{"list", "fixed", 3, 3, false, []string{"a", "b", "é"}, 0},
		{"rule", "rule", 2, 0, false, nil, 2},
		{"empty-rule", "rule", 0, 0, true, nil, 1},
		{"empty-list", "fixed", 0, 0, true, []string{}, 0},
	}
	list, err := w.queries.AudienceList(t.Context(), here)
	runtest.Must(t, err)
	var got []shown
	for _, a := range list {
		got = append(got, show(a))
		if (a.RecomputedAt == nil) != (a.Slug == audience.Default) || a.CreatedAt.Before(noon) {
			t.Errorf("%s was created at %v and recomputed at %v", a.Slug, a.CreatedAt, a.RecomputedAt)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("audiences (-want +got):\n%s", diff)
	}
	for _, c := range want {
		a, ok, err := w.queries.Audience(t.Context(), here, c.Slug)
		if err != nil || !ok || !cmp.Equal(c, show(a)) {
			t.Errorf("audience %s: %v, %v, %+v", c.Slug, ok, err, show(a))
		}
		if _, ok, err := w.queries.Audience(
			t.Context(), project("there"), c.Slug,
		); err != nil || ok != (c.Slug == audience.Default) {
			t.Errorf("audience %s of the neighbour: %v, %v", c.Slug, ok, err)
		}
	}

	before := list[2].RecomputedAt
	w.recompute("rule")
	w.put("a", traits{})
	w.apply()
	a, _, err := w.queries.Audience(t.Context(), here, "rule")
	if err != nil || a.MemberCount != 1 || !a.RecomputedAt.After(*before) {
		t.Errorf("recomputed: %+v, %v", a, err)
	}
}

func TestLastSeen_SinceCreation(t *testing.T) {
	w := newFixture(t)
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
	wrote := func(author string, minute int) {
		w.Append(stream.Name(stream.DataPoint, id("point")),
			&datapoint.RevisionAccepted{Send: datapoint.Send{ProjectID: here.ID, AcceptedAt: at(minute)}, Author: author})
	}
	pending := seen{}
	w.queries = directory.NewQueries(w.db, head{}, head{}, head{}, pending)
	check := func(what string, want *time.Time) {
		t.Helper()
		w.apply()
		page, err := w.queries.Identities(t.Context(), here, directory.Listing{Limit: 10})
		if err != nil || len(page.List) != 1 {
			t.Fatalf("%s: %v, %v", what, page, err)
		}
		if diff := cmp.Diff(want, page.List[0].LastSeenAt); diff != "" {
			t.Errorf("%s, in the list (-want +got):\n%s", what, diff)
		}
		if diff := cmp.Diff(want, w.show("ana").LastSeenAt); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	wrote("ana", -5)
	w.appear("ana") // a few seconds past noon
	check("a data point from before the record", nil)
	wrote("ben", 9)
	wrote("", 9)
	check("data points of others", nil)
	wrote("ana", 10)
	wrote("ana", 8)
	check("data points", new(at(10)))
	w.Append(stream.UsageName(here.ID, "2026-11"),
		&metering.Charged{ProjectID: here.ID, Seen: []metering.Seen{{IdentityID: who("ana"), At: at(11)}}})
	check("a recall", new(at(11)))
	w.Append(stream.Name(stream.Deletion, id("d")),
		&deletion.FactsKept{ProjectID: here.ID, Facts: []deletion.RetainedFact{{AuthorID: who("ana"), AcceptedAt: at(12)}}})
	check("an erased data point", new(at(12)))
	pending[who("ana")] = at(13)
	check("a recall that the log does not have", new(at(13)))
	pending[who("ana")] = at(3)
	check("an older one", new(at(12)))
	w.remove("ana")
	w.Append(stream.Name(stream.Identity, who("ana")),
		&identity.Appeared{ProjectID: here.ID, Identity: "ana", AppearedAt: at(12).Add(time.Microsecond)})
	check("another record of the name", nil)
	wrote("ana", 14)
	check("a data point of that", new(at(14)))
}

func TestApply_Contradictions(t *testing.T) {
	for name, write := range map[string]func(*writer){
		"an identity of no project":    func(w *writer) { w.Facts = w.Facts[1:]; w.put("ana", nil) },
		"an audience of no project":    func(w *writer) { w.Facts = w.Facts[1:]; w.fixed("a") },
		"the end of one of no project": func(w *writer) { w.Facts = w.Facts[1:]; w.endAudience("a") },
		"an author of no project": func(w *writer) {
			w.Append(stream.Name(stream.DataPoint, id("p")),
				&datapoint.RevisionAccepted{Send: datapoint.Send{ProjectID: id("nowhere")}, Author: "ana"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter()
			write(w)
			if err := applyOnce(t, w); err == nil {
				t.Error("it was applied")
			}
		})
	}
}

func TestApply_DamagedBlobs(t *testing.T) {
	w := newFixture(t)
	lost := w.blobs.write("lost", "x")
	delete(w.blobs, lost.Stream)
	record := w.record("ana", nil)
	record.Traits.Blob = lost
	w.Append(stream.Name(stream.Identity, who("ana")), &identity.TraitsReplaced{ProjectID: here.ID, Record: record})
	w.Append(stream.Name(stream.Audiences, here.ID),
		&audience.Put{ProjectID: here.ID, AudienceID: id("a"), Slug: "a", Kind: audience.KindFixed, MembersBlob: lost})
	w.Append(stream.Name(stream.Audiences, here.ID),
		&audience.Put{ProjectID: here.ID, AudienceID: id("b"), Slug: "b", Kind: audience.KindRule, RuleBlob: lost})
	for n, stage := range []string{"{", `{"identity":"ben"}` + "\n" + `{"identity":"cid"}`, `[]`} {
		ref := w.blobs.write(fmt.Sprint("stage ", n), []byte(stage))
		w.Append(stream.Name(stream.Bulk, id(stage)),
			&identity.BulkAccepted{ProjectID: here.ID, Rows: *ref, Targets: []identity.BulkTarget{{IdentityID: who("ben")}}})
	}
	w.apply()
	if got := w.reach("ana"); got != "[]" || string(w.show("ana").Traits) != "{}" {
		t.Errorf("ana reaches %s with %s", got, w.show("ana").Traits)
	}
	w.want("identities", w.names(here, directory.Listing{Limit: 10}), []string{"ana"})
	if _, ok, err := w.queries.Identity(t.Context(), here, "ben"); ok || err != nil {
		t.Errorf("one that is only known of is shown: %v, %v", ok, err)
	}
	if got := w.reach("ben"); got != "[]" {
		t.Errorf("one that is only known of reaches %s", got)
	}
	w.want("of a long name", w.names(here, directory.Listing{Limit: 10, Key: strings.Repeat("é", 200)}), nil)
}

func TestFit_OneBigEvent(t *testing.T) {
	w := newFixture(t)
	record := w.record("eve", nil)
	ref := *w.blobs.write("eve", traits{"of": "eve"})
	ref.Size = 65 << 20
	record.Traits.Blob = &ref
	w.Append(stream.Name(stream.Identity, who("eve")), &identity.TraitsReplaced{ProjectID: here.ID, Record: record})
	w.apply()
	w.want("identities", w.names(here, directory.Listing{Limit: 10}), []string{"eve"})
}

// lateProjection is a projection that applies events only when a caller waits for the head of the log.
type lateProjection struct {
	head
	at     eventstore.Position
	waited int
	pass   func() error
}

func (b *lateProjection) Head(context.Context) (eventstore.Position, error) { return b.at, nil }

func (b *lateProjection) Wait(_ context.Context, at eventstore.Position, names ...string) error {
	if b.waited++; at != b.at || len(names) != 1 || names[0] != directory.Name {
		return errors.New("another position, or another projection")
	}
	return b.pass()
}

func TestQueries_WaitForHead(t *testing.T) {
	w := newFixture(t)
	log := &lateProjection{at: 77, pass: func() error { w.apply(); return nil }}
	w.queries = directory.NewQueries(w.db, log, log, log, log)
	w.apply()
	w.put("ana", nil)
	w.show("ana") // waits
	if log.waited != 1 {
		t.Errorf("it was waited for %d times", log.waited)
	}
	w.show("ana") // later events may be visible
	if log.waited != 2 {
		t.Error("what is there was not waited for")
	}
	w.put("ben", nil)
	w.want("the list", w.names(here, directory.Listing{Limit: 10}), []string{"ben", "ana"})
	w.fixed("aa", "ana")
	if list, err := w.queries.AudienceList(t.Context(), here); err != nil || len(list) != 2 {
		t.Errorf("%d audiences, %v", len(list), err)
	}
	w.fixed("bb", "ana")
	if _, ok, err := w.queries.Audience(t.Context(), here, "bb"); err != nil || !ok {
		t.Errorf("an audience: %v, %v", ok, err)
	}
	if _, ok, err := w.queries.Identity(t.Context(), here, "cid"); err != nil || ok {
		t.Errorf("one that is not there: %v, %v", ok, err)
	}

	late := fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "late")
	log.pass = func() error { return late }
	for name, ask := range map[string]func(context.Context, auth.Project) error{
		"an unknown identity": func(ctx context.Context, p auth.Project) error {
			_, _, err := w.queries.Identity(ctx, p, "cid")
			return err
		},
		"what is there": func(ctx context.Context, p auth.Project) error {
			_, _, err := w.queries.Identity(ctx, p, "ana")
			return err
		},
		"the list": func(ctx context.Context, p auth.Project) error {
			_, err := w.queries.Identities(ctx, p, directory.Listing{Limit: 1})
			return err
		},
		"audiences": func(ctx context.Context, p auth.Project) error { _, err := w.queries.AudienceList(ctx, p); return err },
		"an unknown audience": func(ctx context.Context, p auth.Project) error {
			_, _, err := w.queries.Audience(ctx, p, "cc")
			return err
		},
	} {
		if err := ask(t.Context(), here); !errors.Is(err, late) {
			t.Errorf("%s, late: %v", name, err)
		}
	}
}

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
