package commands_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

func TestPutAudience_Fixed(t *testing.T) {
	w := newFixture(t)
	seen := &waits{}
	w.configure(func(c *commands.Config) { c.Waiter = seen })
	w.ingest(text("a", "x", by("ana")), "")
	first := w.put(fixedOf("leads", "bo", "ana"))
	facts := w.audiences()
	put, ok := facts[0].Event.(*audience.Put)
	want := []uuid.UUID{w.identityID("ana"), w.identityID("bo")}
	slices.SortFunc(want, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	if !ok || !first.Created || put.AudienceID != first.ID || put.Slug != "leads" || put.Name != "leads" ||
		!slices.Equal(put.Members, want) || put.MembersBlob != nil ||
		put.ProjectID != w.call.Principal.Project.ID || !put.CreatedAt.Equal(w.call.ReceivedAt) {
		t.Errorf("%+v, %+v", put, first)
	}
	if got := seen.take(); !slices.Equal(got, []string{"directory"}) || seen.at != facts[0].Position {
		t.Errorf("waited for %v up to %d", got, seen.at)
	}
	// The put creates a record for each member that has none, and does not change existing records.
	for name, origin := range map[string]identity.Origin{"ana": identity.OriginIngest, "bo": identity.OriginAudience} {
		records := w.records(name)
		appeared, ok := records[0].Event.(*identity.Appeared)
		if len(records) != 1 || !ok || appeared.Origin != origin || appeared.Identity != name ||
			records[0].Position >= facts[0].Position {
			t.Errorf("%s: %+v", name, records)
		}
	}
	// An audience without members is valid.
	second := w.put(fixedOf("leads"))
	facts = w.audiences()
	if put := facts[1].Event.(*audience.Put); second.Created || second.ID != first.ID || len(put.Members) != 0 ||
		put.AudienceID != first.ID {
		t.Errorf("%+v, %+v", put, second)
	}
}

func TestPutAudience_MemberWasRemoved(t *testing.T) {
	w := newFixture(t)
	w.put(fixedOf("leads", "ana"))
	name := stream.Name(stream.Identity, w.identityID("ana"))
	meta := event.NewMeta("test", time.Now())
	removed := identity.Removed{ProjectID: w.call.Principal.Project.ID, RemovedAt: w.call.ReceivedAt}
	runtest.Must(t, errorOf(w.log.Append(t.Context(), name, 0, meta, removed)))
	w.put(fixedOf("leads", "ana"))
	w.put(fixedOf("leads", "ana"))
	var types []string
	for _, f := range w.records("ana") {
		types = append(types, f.Type)
	}
	wantTypes(t, types, "identity.appeared.v1", "identity.removed.v1", "identity.appeared.v1")
}

func TestPutAudience_BigDefinition(t *testing.T) {
	w := newFixture(t)
	names := make([]string, 6500)
	for i := range names {
		names[i] = fmt.Sprint("person ", i)
	}
	w.put(fixedOf("crowd", names...))
	put := w.audiences()[0].Event.(*audience.Put)
	if put.MembersBlob == nil || put.Members != nil ||
		stream.Owner(put.MembersBlob.Stream) != w.call.Principal.Project.ID {
		t.Fatalf("%d members inline, blob %+v", len(put.Members), put.MembersBlob)
	}
	data, err := w.log.ReadBlob(t.Context(), *put.MembersBlob)
	if err != nil || len(data) != 16*len(names) {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	ids := make(map[uuid.UUID]bool)
	for i := 0; i < len(data); i += 16 {
		ids[uuid.UUID(data[i:i+16])] = true
	}
	for _, name := range names {
		if !ids[w.identityID(name)] {
			t.Fatalf("%s is no member", name)
		}
	}

	var big []audience.Condition
	for i := range 20 {
		values := make([]string, 50)
		for v := range values {
			values[v] = fmt.Sprintf("%0500d", i*50+v)
		}
		big = append(big, audience.Condition{Trait: "team", Operator: audience.IsOneOf, Values: values})
	}
	w.put(ruleOf("rules", big...))
	put = w.audiences()[1].Event.(*audience.Put)
	if put.RuleBlob == nil || put.Rule != nil || stream.Owner(put.RuleBlob.Stream) != w.call.Principal.Project.ID {
		t.Errorf("rule %+v, blob %+v", put.Rule, put.RuleBlob)
	}
}

func TestPutAudience_RefusedStoresNothing(t *testing.T) {
	w := newFixture(t)
	w.put(ruleOf("rules", audience.Condition{Trait: "team", Operator: audience.Exists}))
	before := len(w.audiences())
	mismatch := fixedOf("rules", "ana")
	mismatch.Rule = &audience.Rule{}
	for code, in := range map[string]identities.AudiencePut{
		"audience-slug-invalid":        fixedOf("Leads", "ana"),
		"audience-slug-reserved":       fixedOf("project", "ana"),
		"audience-kind-invalid":        {Slug: "leads", Kind: "default", Identities: []string{"ana"}},
		"audience-kind-mismatch":       mismatch,
		"audience-kind-switch-invalid": {Slug: "rules", Kind: audience.KindFixed},
		"audience-rule-invalid":        ruleOf("rules"),
		"invalid-request":              {Slug: "leads", Kind: audience.KindFixed},
	} {
		wantFault(t, errorOf(w.PutAudience(t.Context(), w.call, in)), code)
	}
	if n := len(w.audiences()); n != before || len(w.records("ana")) != 0 {
		t.Errorf("%d events, %d of ana", n-before, len(w.records("ana")))
	}
}

func TestAudiences_SameSlugInTwoProjects(t *testing.T) {
	w := newFixture(t)
	r := w.put(fixedOf("leads"))
	neighbour := *w
	neighbour.call.Principal.Project.ID, neighbour.call.Principal.Project.Namespace = uuid.New(), uuid.New()
	_, err := neighbour.Ingest(t.Context(), neighbour.call, text("a", "x", to("leads")), "")
	wantFault(t, err, "audience-unknown")
	wantFault(t, neighbour.DeleteAudience(t.Context(), neighbour.call, "leads"), "not-found")
	wantFault(t, errorOf(neighbour.RecomputeAudience(t.Context(), neighbour.call, "leads")), "not-found")
	if other := neighbour.put(fixedOf("leads")); !other.Created || other.ID == r.ID {
		t.Errorf("%+v, the neighbour's is %s", other, r.ID)
	}
	if n := len(w.audiences()); n != 1 {
		t.Errorf("%d events of the first project", n)
	}
}

func TestPutAudience_ReusedSlug(t *testing.T) {
	w := newFixture(t)
	seen := &waits{}
	w.configure(func(c *commands.Config) { c.Waiter = seen })
	first := w.put(fixedOf("leads"))
	w.ingest(text("a", "x", to("leads")), "")
	seen.take()
	runtest.Must(t, w.DeleteAudience(t.Context(), w.call, "leads"))
	seen.want(t, "the deletion", "directory")
	wantFault(t, w.DeleteAudience(t.Context(), w.call, "leads"), "not-found")
	_, err := w.Ingest(t.Context(), w.call, text("b", "x", to("leads")), "")
	if f := wantFault(t, err, "audience-unknown"); f.Data["audience"] != "leads" {
		t.Errorf("data %v", f.Data)
	}
	// A second process decides on the same log, regardless of its cache.
	other := fixtureOver(t, w.store)
	second := other.put(fixedOf("leads"))
	if !second.Created || second.ID == first.ID {
		t.Errorf("%+v after %+v", second, first)
	}
	if got := w.head("a").Audience; got != first.ID {
		t.Errorf("the data point moved to %s", got)
	}
	w.ingest(text("a", "x", to("leads")), "")
	if got := w.head("a").Audience; got != second.ID {
		t.Errorf("the data point is in %s, want %s", got, second.ID)
	}
	if done, err := w.RecomputeAudience(t.Context(), w.call, "leads"); err != nil || done.ID != second.ID {
		t.Errorf("%+v, %v", done, err)
	}
}

// Three processes put one audience concurrently. All puts are stored under one id.
func TestPutAudience_ConcurrentProcesses(t *testing.T) {
	w := newFixture(t)
	others := []*fixture{w, fixtureOver(t, w.store), fixtureOver(t, w.store)}
	const each = 10
	errs := make(chan error)
	for n, o := range others {
		go func() {
			for i := range each {
				_, err := o.PutAudience(t.Context(), o.call, fixedOf("leads", fmt.Sprint(n, i)))
				errs <- err
			}
		}()
	}
	for range len(others) * each {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	facts := w.audiences()
	if len(facts) != len(others)*each {
		t.Errorf("%d puts", len(facts))
	}
	first := facts[0].Event.(*audience.Put)
	for _, f := range facts {
		if put := f.Event.(*audience.Put); put.AudienceID != first.AudienceID {
			t.Errorf("the slug is of %s and of %s", first.AudienceID, put.AudienceID)
		}
	}
}

// manyAudiences stores count audiences, each with a small rule.
func (w *fixture) manyAudiences(count int) {
	w.t.Helper()
	name, at := stream.Name(stream.Audiences, w.call.Principal.Project.ID), eventstore.NoStream
	for n := 0; n < count; n += 100 {
		var puts []event.Event
		for i := n; i < min(n+100, count); i++ {
			puts = append(puts, audience.Put{
				ProjectID: w.call.Principal.Project.ID, AudienceID: uuid.New(), Slug: fmt.Sprint("rule-", i), Kind: audience.KindRule,
				Rule: &audience.Rule{
					Match:      audience.MatchAll,
					Conditions: []audience.Condition{{Trait: "team", Operator: audience.Exists}},
				},
			})
		}
		done, err := w.log.Append(w.t.Context(), name, at, event.NewMeta("test", time.Now()), puts...)
		runtest.Must(w.t, err)
		at = done.Revision
	}
}

// Puts of several processes race for the last free place. Exactly one succeeds.
func TestPutAudience_RaceForTheLastPlace(t *testing.T) {
	w := newFixture(t)
	w.manyAudiences(limit.Audiences - 1)
	others := []*fixture{w, fixtureOver(t, w.store), fixtureOver(t, w.store)}
	const each = 4
	errs := make(chan error)
	for n, o := range others {
		for i := range each {
			go func() {
				_, err := o.PutAudience(t.Context(), o.call,
					ruleOf(fmt.Sprintf("more-%d-%d", n, i), audience.Condition{Trait: "team", Operator: audience.Exists}))
				errs <- err
			}()
		}
	}
	refused := 0
	for range len(others) * each {
		if err := <-errs; err != nil {
			wantFault(t, err, "audience-limit-reached")
			refused++
		}
	}
	if n := len(w.audiences()); refused != len(others)*each-1 || n != limit.Audiences {
		t.Errorf("%d were refused, %d audiences", refused, n)
	}
	runtest.Must(t, w.DeleteAudience(t.Context(), w.call, "rule-1"))
	w.put(fixedOf("leads"))
}

// A put beyond the limit leaves neither records nor blobs.
func TestPutAudience_DefinitionsBeyondTheLimit(t *testing.T) {
	w := newFixture(t)
	meta := event.NewMeta("test", time.Now())
	full := audience.Put{
		ProjectID: w.call.Principal.Project.ID, AudienceID: uuid.New(), Slug: "full", Kind: audience.KindRule,
		RuleBlob: &blob.Ref{Size: limit.AudienceBytes - 64},
	}
	name := stream.Name(stream.Audiences, full.ProjectID)
	runtest.Must(t, errorOf(w.log.Append(t.Context(), name, eventstore.NoStream, meta, full)))
	before, err := w.store.Head(t.Context())
	runtest.Must(t, err)
	_, err = w.PutAudience(t.Context(), w.call, fixedOf("leads", "ana", "bo", "cy"))
	wantFault(t, err, "audience-limit-reached")
	if after, err := w.store.Head(t.Context()); err != nil || after != before {
		t.Errorf("the log moved from %d to %d, %v", before, after, err)
	}
	w.put(fixedOf("leads", "ana", "bo"))
}

func TestPutAudience_KnownMembersAreNotRead(t *testing.T) {
	w := newFixture(t)
	known := &records{names: []string{"ana"}}
	w.ingest(text("a", "x", by("cy")), "") // the directory has no record of cy yet
	w.configure(func(c *commands.Config) { c.Records = known })
	w.put(fixedOf("leads", "ana", "bo", "cy"))
	put := w.audiences()[0].Event.(*audience.Put)
	if len(put.Members) != 3 || len(w.records("ana")) != 0 || len(w.records("bo")) != 1 || len(w.records("cy")) != 1 ||
		known.asked != 3 {
		t.Errorf("%d members, %d, %d and %d events, %d asked", len(put.Members), len(w.records("ana")), len(w.records("bo")),
			len(w.records("cy")), known.asked)
	}
}

func TestIngest_MovesWaitForProjections(t *testing.T) {
	w := newFixture(t)
	seen := &waits{}
	leads, staff := "leads", "staff"
	w.put(fixedOf(leads))
	w.put(fixedOf(staff))
	w.configure(func(c *commands.Config) { c.Waiter = seen })
	for _, c := range []struct {
		name   string
		in     ingest.DataPoint
		waits  bool
		last   string
		status string
	}{
		{"new", text("a", "x", to(leads)), false, "datapoint.revision-accepted.v1", "queued"},
		{"moved", text("a", "x", to(staff)), true, "datapoint.moved.v1", "completed"},
		{"again, where the first was perhaps not answered", text("a", "x", to(staff)), true, "datapoint.resent.v1", "completed"},
		{"new text there", text("a", "y", to(staff)), false, "datapoint.revision-accepted.v1", "queued"},
		{"new text elsewhere", text("a", "z", to(leads)), true, "datapoint.revision-accepted.v1", "queued"},
		{"without one", text("a", "z"), true, "datapoint.moved.v1", "completed"},
		{"said in full", text("a", "z", to("project")), false, "datapoint.resent.v1", "completed"},
	} {
		for _, way := range []string{"single", "batch"} {
			if way == "batch" {
				id := "in a batch"
				c.in.ID = &id
			}
			status := ""
			if way == "single" {
				status = w.ingest(c.in, "").Status
			} else {
				r, err := w.IngestBatch(t.Context(), w.call, []ingest.DataPoint{text("b", "other"), c.in}, "")
				runtest.Must(t, err)
				status = r.Items[1].Status
			}
			types := w.types(*c.in.ID)
			got := seen.take()
			want := waitsFor(c.waits, c.last == "datapoint.moved.v1")
			if types[len(types)-1] != c.last || status != c.status || !slices.Equal(got, want) {
				t.Errorf("%s, %s: %s, %s, waited for %v", c.name, way, types[len(types)-1], status, got)
			}
		}
	}
}

// waitsFor returns the projections that an answer waits for. A move is completed at once, so its
// answer waits for the index.
func waitsFor(follows, moved bool) []string {
	switch {
	case moved:
		return []string{"datapoints", "recallindex"}
	case follows:
		return []string{"datapoints"}
	default:
		return nil
	}
}

func TestIngest_RepeatedKeyOfAMove(t *testing.T) {
	w := newFixture(t)
	w.put(fixedOf("leads"))
	w.ingest(text("a", "x"), "")
	w.ingest(text("a", "x", to("leads")), "k1")
	batch := []ingest.DataPoint{text("a", "x", to("leads"))}
	runtest.Must(t, errorOf(w.IngestBatch(t.Context(), w.call, batch, "k2")))
	seen := &waits{}
	w.configure(func(c *commands.Config) { c.Waiter = seen })
	// A repeated key is answered even after the audience was deleted.
	runtest.Must(t, w.DeleteAudience(t.Context(), w.call, "leads"))
	seen.take()
	w.ingest(text("a", "x", to("leads")), "k1")
	seen.want(t, "the move", "datapoints", "recallindex")
	runtest.Must(t, errorOf(w.IngestBatch(t.Context(), w.call, batch, "k2")))
	seen.want(t, "the batch", "datapoints")
}

func TestIngestBatch_UnknownAudience(t *testing.T) {
	w := newFixture(t)
	w.put(fixedOf("leads"))
	for _, slug := range []string{"lead", "LEADS", "", "a/b"} {
		_, err := w.IngestBatch(t.Context(), w.call, []ingest.DataPoint{text("a", "x", to("leads")), text("b", "x", to(slug))}, "")
		if f := wantFault(t, err, "audience-unknown"); f.Data["audience"] != slug || f.Data["item"] != 1 {
			t.Errorf("%q: %v", slug, f.Data)
		}
	}
	if n := len(w.history("a")); n != 0 {
		t.Errorf("%d events of the item before", n)
	}
}

// The put of a rule and a recompute answer once the members are counted; recall shows the change before.
func TestAudiences_AnswerAfterTheRecount(t *testing.T) {
	w, waited := newFixture(t), &waits{}
	config := w.config
	config.Waiter, config.FollowUps = waited, waited
	w.Service = commands.New(config)
	in := ruleOf("blue", audience.Condition{Trait: "team", Operator: audience.Is, Values: []string{"blue"}})
	made := w.put(in)
	want := []string{"directory", "directory recount " + made.ID.String()}
	waited.want(t, "the put", want...)
	runtest.Must(t, errorOf(w.RecomputeAudience(t.Context(), w.call, "blue")))
	waited.want(t, "the recompute", want...)
	waited.late = errors.New("late")
	f := wantFault(t, errorOf(w.PutAudience(t.Context(), w.call, in)), fault.CodeServiceUnavailable)
	if f.Data["committed"] != true {
		t.Errorf("a put whose recount is late: %v, want one that is committed", f)
	}
}
