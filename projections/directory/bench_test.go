package directory_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/directory"
)

// The size of the benchmark: 200 rules of two conditions each, and identities with five traits.
const (
	benchIdentities = 100_000
	benchRules      = 200
)

func benchTraits(n int) traits {
	return traits{
		"team": fmt.Sprint("team ", n%100), "role": fmt.Sprint("role ", n%7), "site": fmt.Sprint("site ", n%20),
		"level": fmt.Sprint(n % 5), "mail": fmt.Sprintf("person-%d@example.com", n),
	}
}

// benchFixture is a filled directory. It applies further events, one page each.
type benchFixture struct {
	*writer
	db        *pgxpool.Pool
	queries   *directory.Queries
	projector *directory.Projector
	page      func(events ...eventstore.DecodedEvent)
	next      eventstore.Position
	heads     map[string]eventstore.Revision
}

// fact makes the next event of the log. It does not keep the log, which would be read for each
// event.
func (w *benchFixture) fact(name string, e event.Event) eventstore.DecodedEvent {
	w.next += 10
	f := eventstore.DecodedEvent{
		Recorded: eventstore.Recorded{Stream: name, Revision: w.heads[name], Position: w.next, Type: e.EventType()},
		Event:    e,
	}
	w.heads[name]++
	return f
}

func (w *benchFixture) identity(n int, t traits) eventstore.DecodedEvent {
	name := fmt.Sprint("person ", n)
	return w.fact(stream.Name(stream.Identity, who(name)),
		&identity.TraitsReplaced{ProjectID: here.ID, Record: w.record(name, t)})
}

func (w *benchFixture) recomputes(slug string) eventstore.DecodedEvent {
	return w.fact(stream.Name(stream.Audiences, here.ID),
		&audience.Recomputed{ProjectID: here.ID, AudienceID: id(slug), RecomputedAt: noon})
}

// empty is a directory of one project without identities.
func empty(b *testing.B) *benchFixture {
	b.Helper()
	w := &benchFixture{writer: newWriter(), heads: map[string]eventstore.Revision{}, next: 1000}
	p := directory.New(w.blobs, namespaces, slog.New(slog.DiscardHandler))
	db := pgtest.Database(b)
	projectiontest.Make(b, db, p)
	w.queries = directory.NewQueries(db, head{}, head{}, head{}, head{})
	w.page = func(facts ...eventstore.DecodedEvent) {
		b.Helper()
		err := pgx.BeginFunc(b.Context(), db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(b.Context(), "set local synchronous_commit = off"); err != nil {
				return err
			}
			if err := projectiontest.Enter(b.Context(), tx, p); err != nil {
				return err
			}
			return p.Apply(b.Context(), tx, facts)
		})
		runtest.Must(b, err)
	}
	w.page(w.Facts...)
	w.db, w.projector = db, p
	return w
}

func fill(b *testing.B) *benchFixture {
	b.Helper()
	w := empty(b)
	var page []eventstore.DecodedEvent
	for n := range benchIdentities {
		if page = append(page, w.identity(n, benchTraits(n))); len(page) == 512 || n == benchIdentities-1 {
			w.page(page...)
			page = page[:0]
		}
	}
	for n := range benchRules {
		slug := fmt.Sprint("rule-", n)
		page = append(page, w.fact(stream.Name(stream.Audiences, here.ID), &audience.Put{
			ProjectID: here.ID, AudienceID: id(slug), Slug: slug, Name: slug, Kind: audience.KindRule,
			CreatedAt: noon, PutAt: noon,
			Rule: &audience.Rule{Match: audience.MatchAll, Conditions: []audience.Condition{
				is("team", fmt.Sprint("team ", n%100)), {
					Trait: "role", Operator: audience.IsNotOneOf, Values: []string{"role 1", fmt.Sprint("role ", n%7)},
				},
			}},
		}))
	}
	w.page(page...)
	runtest.Must(b, projectiontest.FollowUp(b.Context(), w.db, w.projector))
	if _, err := w.db.Exec(b.Context(), "vacuum analyze"); err != nil {
		b.Fatal(err)
	}
	return w
}

// BenchmarkDirectory measures database and projector for 100,000 identities and 200 rules: a write
// of one identity and of 512, a recount of one rule and of all, a reach, and the reads of the API.
func BenchmarkDirectory(b *testing.B) {
	w := fill(b)
	for n := range benchRules {
		if got, ok, err := w.queries.Audience(
			b.Context(), here, fmt.Sprint("rule-", n),
		); err != nil || !ok || got.MemberCount == 0 || got.MemberCount > benchIdentities/100 {
			b.Fatalf("rule %d reaches %d, %v", n, got.MemberCount, err)
		}
	}
	n := 0
	b.Run("put", func(b *testing.B) {
		for b.Loop() {
			n++
			w.page(w.identity(n, benchTraits(n+1)))
		}
	})
	b.Run("puts of a page", func(b *testing.B) {
		for b.Loop() {
			var page []eventstore.DecodedEvent
			for range 512 {
				n++
				page = append(page, w.identity(n%benchIdentities, benchTraits(n*3)))
			}
			w.page(page...)
		}
	})
	b.Run("recompute", func(b *testing.B) {
		for b.Loop() {
			w.page(w.recomputes("rule-7"))
		}
	})
	b.Run("recompute all rules", func(b *testing.B) {
		for b.Loop() {
			var page []eventstore.DecodedEvent
			for r := range benchRules {
				page = append(page, w.recomputes(fmt.Sprint("rule-", r)))
			}
			w.page(page...)
		}
	})
	reach := func(p auth.Project) func(b *testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				n++
				if reached, err := w.queries.Reach(
					b.Context(), p, fmt.Sprint("person ", n%benchIdentities),
				); err != nil || reached.Audiences[0] != uuid.Nil {
					b.Fatal(reached, err)
				}
			}
		}
	}
	b.Run("reach", reach(here))
	b.Run("reach of no rules", reach(project("there")))
	value := "team 7"
	for name, l := range map[string]directory.Listing{
		"list": {Limit: 100}, "list by trait": {Limit: 100, Key: "team"}, "list by value": {Limit: 100, Key: "team", Value: &value},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if page, err := w.queries.Identities(b.Context(), here, l); err != nil || len(page.List) != 100 {
					b.Fatal(len(page.List), err)
				}
			}
		})
	}
	for name, l := range map[string]directory.Listing{
		"page": {Limit: 100}, "page of a rare prefix": {Limit: 100, Prefix: "person 99999"},
		"page of no prefix":               {Limit: 100, Prefix: "nobody"},
		"page of a prefix":                {Limit: 100, Prefix: "person 1"},
		"page of a trait":                 {Limit: 100, Key: "team"},
		"page of a rare prefix and trait": {Limit: 100, Key: "team", Prefix: "person 99999"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := w.queries.IdentityPage(b.Context(), here, l); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("preview of a rule", func(b *testing.B) {
		rule := audience.Rule{Match: audience.MatchAll, Conditions: []audience.Condition{is("team", "team 7")}}
		for b.Loop() {
			p, err := w.queries.PreviewRule(b.Context(), here, rule)
			if err != nil || p.Looked != benchIdentities || p.Members == 0 {
				b.Fatal(p, err)
			}
		}
	})
	b.Run("members of a rule", func(b *testing.B) {
		for b.Loop() {
			page, _, err := w.queries.Members(b.Context(), here, "rule-7", directory.MemberListing{Limit: 50})
			if err != nil || len(page.List) != 50 {
				b.Fatal(len(page.List), err)
			}
		}
	})
	b.Run("past", func(b *testing.B) { benchmarkPast(b, w) })
	b.Run("keys of traits", func(b *testing.B) {
		for b.Loop() {
			if keys, err := w.queries.TraitKeys(b.Context(), here); err != nil || len(keys) != 5 {
				b.Fatal(keys, err)
			}
		}
	})
	b.Run("audiences", func(b *testing.B) {
		for b.Loop() {
			if list, err := w.queries.AudienceList(b.Context(), here); err != nil || len(list) != benchRules+1 {
				b.Fatal(len(list), err)
			}
		}
	})
}

// benchmarkPast asks about the time when the directory was filled.
func benchmarkPast(b *testing.B, w *benchFixture) {
	at, n := noon.Add(time.Hour), 0
	for name, lost := range map[string]bool{"members of a rule": false, "who lost access": true} {
		b.Run(name, func(b *testing.B) {
			listing := directory.PastListing{At: at, Lost: lost, Limit: 50}
			for b.Loop() {
				page, _, err := w.queries.MembersAt(b.Context(), here, "rule-7", listing)
				if err != nil || !lost && len(page.List) != 50 {
					b.Fatal(len(page.List), err)
				}
			}
		})
	}
	b.Run("judgement", func(b *testing.B) {
		for b.Loop() {
			n++
			j, err := w.queries.JudgeAt(b.Context(), here, fmt.Sprint("person ", n%benchIdentities), id("rule-7"), at)
			if err != nil || !j.HasRecord || j.Audience == nil {
				b.Fatal(j, err)
			}
		}
	})
}

// BenchmarkHostileDirectory puts and recomputes 60 rules of the largest allowed size over 20,000
// identities with a trait of each condition. Most of a put is to read and hash 2 MB of values.
func BenchmarkHostileDirectory(b *testing.B) {
	const identities, rules = 20_000, 60
	w := empty(b)
	var page []eventstore.DecodedEvent
	for n := range identities {
		t := make(traits, limit.RuleConditions)
		for c := range limit.RuleConditions {
			t[fmt.Sprint("trait ", c)] = fmt.Sprintf("%0100d", n+c)
		}
		if page = append(page, w.identity(n, t)); len(page) == 512 || n == identities-1 {
			w.page(page...)
			page = page[:0]
		}
	}
	put := func(n int) eventstore.DecodedEvent {
		rule := audience.Rule{Match: audience.MatchAny}
		for c := range limit.RuleConditions {
			values := make([]string, limit.RuleValues)
			for v := range values {
				values[v] = fmt.Sprintf("%0*d", limit.TraitValue, n*1_000_000+c*1000+v)
			}
			rule.Conditions = append(rule.Conditions,
				audience.Condition{Trait: fmt.Sprint("trait ", c), Operator: audience.IsOneOf, Values: values})
		}
		slug := fmt.Sprint("rule-", n)
		return w.fact(stream.Name(stream.Audiences, here.ID), &audience.Put{
			ProjectID: here.ID, AudienceID: id(slug), Slug: slug, Name: slug, Kind: audience.KindRule,
			CreatedAt: noon, PutAt: noon,
			RuleBlob: w.blobs.write(slug, rule),
		})
	}
	for n := range rules {
		w.page(put(n))
	}
	b.Run("put", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.page(put(7))
		}
	})
	b.Run("recompute one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.page(w.recomputes("rule-7"))
		}
	})
	b.Run("recompute all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for n := range rules {
				page = append(page, w.recomputes(fmt.Sprint("rule-", n)))
			}
			w.page(page...)
			page = page[:0]
		}
	})
}
