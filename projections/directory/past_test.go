package directory_test

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/directory"
)

// moment is what a model of the directory is from a time on.
type moment struct {
	at        time.Time
	traits    map[string]traits // of records
	audiences map[uuid.UUID]modelAudience
}

// modelAudience is an audience with the names that its list has, or with a rule.
type modelAudience struct {
	rule *audience.Rule
	list []string
}

// has reports whether a name belongs to an audience.
func (m moment) has(of uuid.UUID, name string) bool {
	a, live := m.audiences[of]
	own, record := m.traits[name]
	if !live || !record || a.rule == nil {
		return live && record && slices.Contains(a.list, name)
	}
	held := 0
	for _, c := range a.rule.Conditions {
		value, has := own[c.Trait]
		in := slices.Contains(c.Values, value)
		if c.Operator == audience.DoesNotExist && !has || has && (c.Operator == audience.Exists ||
			in && (c.Operator == audience.Is || c.Operator == audience.IsOneOf) ||
			!in && (c.Operator == audience.IsNot || c.Operator == audience.IsNotOneOf)) {
			held++
		}
	}
	return held == len(a.rule.Conditions) || held > 0 && a.rule.Match == audience.MatchAny
}

// walk is a random history with a model of it.
type walk struct {
	*writer
	*testing.T
	random  *rand.Rand
	moments []moment
	erased  map[string]time.Time
	cut     map[string]eventstore.Revision
	stages  []string
	live    map[string]uuid.UUID // audiences by slug
	ever    []uuid.UUID
	last    map[uuid.UUID]*audience.Put
}

func newWalk(t *testing.T) *walk {
	t.Helper()
	return &walk{
		writer: newWriter(), T: t, random: rand.New(rand.NewPCG(7, 48)), erased: map[string]time.Time{},
		cut: map[string]eventstore.Revision{}, live: map[string]uuid.UUID{}, last: map[uuid.UUID]*audience.Put{},
		moments: []moment{{at: noon.Add(-time.Hour), traits: map[string]traits{}, audiences: map[uuid.UUID]modelAudience{}}},
	}
}

var walkers = []string{"ana", "ben", "cid", "dee", "eve", "fay"}

func some[V any](w *walk, of []V) V { return of[w.random.IntN(len(of))] }

func (w *walk) someTraits() traits {
	t := traits{}
	for _, key := range drawnKeys {
		if w.random.IntN(4) > 0 {
			t[key] = some(w, drawnWords)
		}
	}
	return t
}

// next begins a moment.
func (w *walk) next() *moment {
	last := w.moments[len(w.moments)-1]
	w.moments = append(w.moments, moment{w.now(), maps.Clone(last.traits), maps.Clone(last.audiences)})
	return &w.moments[len(w.moments)-1]
}

func (w *walk) step() {
	name, slug := some(w, walkers), some(w, drawnSlugs)
	m := w.next()
	_, record := m.traits[name]
	switch w.random.IntN(12) {
	case 0:
		w.appear(name)
		if !record {
			m.traits[name] = traits{}
		}
	case 1, 2, 3:
		own := w.someTraits()
		w.put(name, own)
		m.traits[name] = own
	case 4:
		if record && slices.Contains(walkers[:3], name) && w.random.IntN(2) == 0 {
			w.forget(m, name)
		}
	case 5, 6:
		w.bulkStep(m)
	case 7:
		if of, live := w.live[slug]; live && w.random.IntN(3) == 0 {
			w.Append(stream.Name(stream.Audiences, here.ID),
				&audience.Removed{ProjectID: here.ID, AudienceID: of, RemovedAt: w.now()})
			delete(m.audiences, of)
			delete(w.live, slug)
		}
	default:
		w.putStep(m, slug)
	}
}

func (w *walk) forget(m *moment, name string) {
	delete(m.traits, name)
	for of, a := range m.audiences { // of equal definitions that are put later it may be one again
		a.list = slices.DeleteFunc(slices.Clone(a.list), func(n string) bool { return n == name })
		m.audiences[of] = a
	}
	w.erased[name] = w.now()
	w.remove(name)
	removal := w.Facts[len(w.Facts)-1]
	w.cut[removal.Stream] = removal.Revision
	w.Append(removal.Stream, &identity.Cleared{
		ProjectID: here.ID, Removal: int64(removal.Revision), ClearedAt: w.now(),
	})
}

// bulkStep writes several records, and completes that.
func (w *walk) bulkStep(m *moment) {
	rows, bulk, at := map[string]traits{}, fmt.Sprint("bulk ", len(w.Facts)), w.now()
	for range 1 + w.random.IntN(3) {
		rows[some(w, walkers)] = w.someTraits()
	}
	commit := w.bulk(bulk, rows)
	w.stages = append(w.stages, w.Facts[len(w.Facts)-1].Event.(*identity.BulkAccepted).Rows.Stream)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		w.bulkRow(bulk, name, commit, &identity.Record{
			Identity: name, Traits: identity.Traits{Inline: rows[name]}, Origin: identity.OriginAPI, CreatedAt: at, UpdatedAt: at,
		})
		m.traits[name] = rows[name]
	}
	w.fannedOut(bulk)
}

// putStep puts an audience, sometimes as it is.
func (w *walk) putStep(m *moment, slug string) {
	of, live := w.live[slug]
	if !live {
		of = id(fmt.Sprint(slug, " of ", len(w.Facts)))
		w.live[slug], w.ever = of, append(w.ever, of)
	}
	put := &audience.Put{ProjectID: here.ID, AudienceID: of, Slug: slug, Name: slug, CreatedAt: w.now(), PutAt: w.now()}
	switch same := w.last[of]; {
	case same != nil && w.random.IntN(3) == 0:
		put.Kind, put.Members, put.Rule = same.Kind, same.Members, same.Rule
	case w.random.IntN(2) == 0:
		put.Kind = audience.KindFixed
		for _, name := range walkers {
			if w.random.IntN(2) == 0 {
				put.Members = append(put.Members, who(name))
			}
		}
		slices.SortFunc(put.Members, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	default:
		matches := []audience.Match{audience.MatchAll, audience.MatchAny}
		put.Kind, put.Rule = audience.KindRule, &audience.Rule{Match: some(w, matches)}
		for range 1 + w.random.IntN(2) {
			c := audience.Condition{Trait: some(w, drawnKeys), Operator: some(w, audience.Operators()), Values: []string{}}
			if c.Operator != audience.Exists && c.Operator != audience.DoesNotExist {
				c.Values = append(c.Values, some(w, drawnWords))
			}
			put.Rule.Conditions = append(put.Rule.Conditions, c)
		}
	}
	a := modelAudience{rule: put.Rule}
	for _, name := range walkers {
		if _, record := m.traits[name]; record && slices.Contains(put.Members, who(name)) {
			a.list = append(a.list, name)
		}
	}
	m.audiences[of], w.last[of] = a, put
	w.Append(stream.Name(stream.Audiences, here.ID), put)
}

// at is the place of the moment of a time.
func (w *walk) at(at time.Time) (n int) {
	for n = len(w.moments) - 1; w.moments[n].at.After(at); n-- {
	}
	return n
}

// span is from when to when a name belonged to an audience about a moment; to is nil if it does now.
func (w *walk) span(n int, of uuid.UUID, name string) (from time.Time, to *time.Time) {
	for from = w.moments[n].at; w.moments[n].has(of, name); n-- {
		from = w.moments[n].at
	}
	for n++; n < len(w.moments); n++ {
		if !w.moments[n].has(of, name) {
			return from, &w.moments[n].at
		}
	}
	return from, nil
}

// withoutErased is the log that is left of the walk, with its blobs.
func (w *walk) withoutErased() (left []eventstore.DecodedEvent, kept blobs) {
	for _, f := range w.Facts {
		if cut, ok := w.cut[f.Stream]; !ok || f.Revision >= cut {
			left = append(left, f)
		}
	}
	kept = maps.Clone(w.blobs)
	for _, stage := range w.stages {
		delete(kept, stage)
	}
	return left, kept
}

// queriesOf applies a log in pages.
func (w *walk) queriesOf(facts []eventstore.DecodedEvent, b blobs) *directory.Queries {
	w.Helper()
	p := directory.New(b, namespaces, slog.New(slog.DiscardHandler))
	db := pgtest.Database(w.T)
	projectiontest.Make(w.T, db, p)
	for page := range slices.Chunk(facts, 37) {
		projectiontest.Apply(w.T, db, p, page...)
	}
	runtest.Must(w, projectiontest.FollowUp(w.Context(), db, p))
	return directory.NewQueries(db, head{}, head{}, head{}, head{})
}

// Answers about a time agree with a model that keeps every moment, also of a log from which the erased is gone.
func TestPast_AgreesWithAModel(t *testing.T) {
	w := newWalk(t)
	for range 400 {
		w.step()
	}
	left, kept := w.withoutErased()
	if len(w.erased) < 2 || len(left) == len(w.Facts) {
		t.Fatalf("a walk with the erasures of %d", len(w.erased))
	}
	length := w.now().Sub(noon)
	for what, q := range map[string]*directory.Queries{"whole": w.queriesOf(w.Facts, w.blobs), "replayed": w.queriesOf(left, kept)} {
		random := rand.New(rand.NewPCG(1, 1))
		said := map[string]int{}
		for range 1000 {
			at := noon.Add(time.Duration(random.Int64N(int64(length)))).Truncate(time.Microsecond)
			said[w.judges(q, what, walkers[random.IntN(len(walkers))], w.ever[random.IntN(len(w.ever))], at)]++
		}
		for _, answer := range []string{"member", "no member", "erased", "no audience"} {
			if said[answer] < 10 {
				t.Errorf("%s: the walk hardly asks for %q: %v", what, answer, said)
			}
		}
		for range 40 {
			at := noon.Add(time.Duration(random.Int64N(int64(length))))
			for slug, of := range w.live {
				w.listsAt(q, slug, of, at)
			}
		}
	}
}

// judges compares a judgement with the model, and returns what it is.
func (w *walk) judges(q *directory.Queries, what, name string, of uuid.UUID, at time.Time) string {
	w.Helper()
	j, err := q.JudgeAt(w.Context(), here, name, of, at)
	runtest.Must(w, err)
	if erased := w.erased[name]; erased.After(at) {
		if j.Past.ErasedAt == nil || !j.Past.ErasedAt.Equal(erased) || j.IsMember || j.Audience != nil {
			w.Errorf("%s: %s is erased at %v and judged %+v", what, name, erased, j)
		}
		return "erased"
	}
	n := w.at(at)
	m := w.moments[n]
	_, record := m.traits[name]
	_, live := m.audiences[of]
	is := m.has(of, name)
	if j.IsMember != is || j.HasRecord != record || (j.Audience != nil) != live || !j.Past.IsKnown {
		w.Fatalf("%s: %s at %v, want member %v, record %v, audience %v: %+v, %+v", what, name, at.Sub(noon), is, record, live,
			j, j.Past)
	}
	if !is {
		if !live {
			return "no audience"
		}
		return "no member"
	}
	from, to := w.span(n, of, name)
	if !j.Since.Equal(from) || !j.Exact || !j.Past.UntilKnown || fmt.Sprint(j.Past.Until) != fmt.Sprint(to) {
		w.Errorf("%s: %s at %v from %v to %v: judged since %v (%v) until %v", what, name, at.Sub(noon), from, to, j.Since,
			j.Exact, j.Past.Until)
	}
	if rule := m.audiences[of].rule; rule != nil && len(j.Conditions) != len(rule.Conditions) {
		w.Errorf("%s: conditions %+v of %+v", what, j.Conditions, rule)
	}
	return "member"
}

// listsAt compares the members at a time with the model, in pages of two.
func (w *walk) listsAt(q *directory.Queries, slug string, of uuid.UUID, at time.Time) {
	w.Helper()
	for _, lost := range []bool{false, true} {
		got, want := map[string]string{}, map[string]string{}
		l := directory.PastListing{At: at, Lost: lost, Limit: 2}
		for more := true; more; {
			page, ok, err := q.MembersAt(w.Context(), here, slug, l)
			if err != nil || !ok {
				w.Fatal(ok, err)
			}
			for _, m := range page.List {
				got[m.Identity] = fmt.Sprint(m.Since, m.Exact, m.Until, m.UntilKnown)
			}
			more, l.After = page.Next, page.End
		}
		for _, name := range walkers {
			for n := w.at(at); n < len(w.moments); n++ {
				if gone := w.erased[name]; gone.After(at) && !w.moments[n].at.After(gone) || !w.moments[n].has(of, name) ||
					lost && w.moments[len(w.moments)-1].has(of, name) {
					continue
				}
				if from, to := w.span(n, of, name); !lost && n == w.at(at) || lost {
					want[name] = fmt.Sprint(from, true, to, true)
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			w.Errorf("%s at %v, lost %v:\ngot  %v\nwant %v", slug, at.Sub(noon), lost, got, want)
		}
	}
}

// rows counts the rows of a table.
func (w *fixture) rows(table string) (n int) {
	w.Helper()
	runtest.Must(w, w.db.QueryRow(w.Context(), "select count(*) from directory."+table).Scan(&n))
	return n
}

// A change of a rule has one row, however many identities it reaches, and a write that changes nothing has none.
func TestPast_RowsOfAChange(t *testing.T) {
	w := newFixture(t)
	for n := range 500 {
		w.put(fmt.Sprint("person ", n), traits{"team": fmt.Sprint(n % 2)})
	}
	w.apply()
	for n := range 10 {
		for range 2 {
			w.rule("a", audience.MatchAll, is("team", fmt.Sprint(n%2)))
		}
		w.fixed("b", "person 1", "person 2")
		w.put("person 7", traits{"team": "1"})
		w.apply()
	}
	if n := w.rows("past_traits"); n != 500 {
		t.Errorf("%d rows of traits that did not change", n)
	}
	if n := w.rows("past_audiences"); n != 20 {
		t.Errorf("%d rows of ten rules and of ten equal lists", n)
	}
	if n := w.rows("past_lists"); n != 1 {
		t.Errorf("%d rows of equal lists", n)
	}
}

// Beyond the bound the answer is since when at least, and never wrong.
func TestPast_Bounds(t *testing.T) {
	w := newFixture(t)
	w.put("ana", traits{"team": "red"})
	w.put("ben", traits{"team": "red"})
	w.rule("a", audience.MatchAll, is("team", "red"))
	const changes = 3 * directory.MaxPast
	for n := range changes {
		w.put("ana", traits{"team": "red", "n": fmt.Sprint(n)})
	}
	w.apply()
	list := w.members("a", 10)
	if got := since(list); got["ben"] != "3" || got["ana"] != fmt.Sprint("~", 4+changes-directory.MaxPast) {
		t.Errorf("members since %v", got)
	}
	j, err := w.queries.JudgeAt(t.Context(), here, "ana", id("a"), noon.Add(10*time.Second))
	if err != nil || !j.IsMember || !j.Exact || j.Past.Until != nil || j.Past.UntilKnown {
		t.Errorf("judged %+v, %+v, %v", j, j.Past, err)
	}
	listing := directory.PastListing{At: noon, Limit: 1}
	if _, ok, err := w.queries.MembersAt(t.Context(), project("there"), "a", listing); ok || err != nil {
		t.Errorf("members in another project: %v, %v", ok, err)
	}
	for _, slug := range []string{"here", "there"} {
		j, err := w.queries.JudgeAt(t.Context(), project(slug), "ana", id("a"), w.now())
		if err != nil || j.IsMember != (slug == "here") || (j.Audience != nil) != (slug == "here") {
			t.Errorf("judged in %s: %+v, %v", slug, j, err)
		}
	}
}
