package history_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/history"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func id(name string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)) }

// known are the names that projection access has.
type known map[uuid.UUID]string

func (k known) Names(_ context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error) {
	found := map[uuid.UUID]string{}
	for _, id := range ids {
		if name, is := k[id]; is {
			found[id] = name
		}
	}
	return found, nil
}

// applied is a waiter for a projection that has every event as soon as it is appended.
type applied struct{}

func (applied) Wait(context.Context, eventstore.Position, ...string) error { return nil }

// fixture is a log with the rows of its history.
type fixture struct {
	history.Reader

	t       *testing.T
	db      *pgxpool.Pool
	store   eventstore.Store
	journal eventstore.Journal
	n       int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	db, store := pgtest.Database(t), eventstoretest.NewMemory()
	journal := eventstore.Journal{Store: store, Codec: eventstoretest.Codec(t)}
	for _, p := range []projectiontest.Projector{
		history.New(), datapoints.New(journal), directory.New(journal, stream.Namespaces{}, nil),
	} {
		projectiontest.Make(t, db, p)
	}
	f := &fixture{t: t, db: db, store: store, journal: journal, Reader: history.Reader{
		DB: db, Log: store, Blobs: journal, Head: projections.Head{Log: store, Waiter: applied{}},
		Names: known{id("ruth"): "ruth@acme.example", id("key"): "agent", id("hr"): "hr", id("their hr"): "hr"},
	}}
	for org, p := range map[string]string{"acme": "hr", "theirs": "their hr"} {
		f.append(stream.Registry, "operator", &registry.ProjectCreated{
			OrganizationID: id(org), ProjectID: id(p), Slug: "hr", Name: "HR",
		})
	}
	return f
}

// append appends an event a minute after the one before, and applies it.
func (f *fixture) append(name, principal string, e event.Event) {
	f.t.Helper()
	last, ok, err := f.store.ReadLast(f.t.Context(), name)
	if err != nil {
		f.t.Fatal(err)
	}
	if !ok {
		last.Revision = eventstore.NoStream
	}
	meta := event.NewMeta(principal, noon.Add(time.Duration(f.n)*time.Minute))
	f.n++
	if _, err = f.journal.Append(f.t.Context(), name, last.Revision, meta, e); err != nil {
		f.t.Fatal(err)
	}
	added, _, err := f.journal.At(f.t.Context(), name, last.Revision+1)
	if err != nil {
		f.t.Fatal(err)
	}
	projectiontest.Apply(f.t, f.db, history.New(), added)
}

var (
	ruth    = "person:" + id("ruth").String()
	owner   = history.Viewer{Organization: id("acme"), May: history.Manage}
	ofHR    = history.Viewer{Organization: id("acme"), Project: id("hr"), May: history.Manage}
	streams = map[string]string{
		"organization": stream.Name(stream.Organization, id("acme")), "project": stream.Name(stream.Project, id("hr")),
		"audiences": stream.Name(stream.Audiences, id("hr")), "ana": stream.Name(stream.Identity, id("ana")),
	}
)

// lines are the events of all pages, each with its changes.
func (f *fixture) lines(v history.Viewer, q history.Query) (lines []string) {
	f.t.Helper()
	for {
		page, err := f.List(f.t.Context(), v, q)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, e := range page.Events {
			line := e.Text
			for _, c := range e.Changes {
				line += " | " + c.String()
			}
			lines = append(lines, line)
		}
		if q.After = page.Next; q.After == "" {
			return lines
		}
	}
}

func (f *fixture) want(v history.Viewer, q history.Query, want ...string) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.lines(v, q)); diff != "" {
		f.t.Errorf("%+v (-want +got):\n%s", q, diff)
	}
}

func rule(values ...string) *audience.Rule {
	return &audience.Rule{Match: audience.MatchAny, Conditions: []audience.Condition{
		{Trait: "team", Operator: audience.IsOneOf, Values: values}, {Trait: "boss", Operator: audience.Exists},
	}}
}

func TestList_FromWhatToWhat(t *testing.T) {
	f := newFixture(t)
	f.append(streams["organization"], "management-key:"+id("mk").String(), &organization.MemberAdded{
		OrganizationID: id("acme"), MemberID: id("kim"), Role: organization.Member,
	})
	f.append(streams["organization"], ruth, &organization.ProjectAccessSet{
		OrganizationID: id("acme"), MemberID: id("kim"), ProjectID: id("hr"), Access: organization.WriteAccess,
	})
	f.append(streams["organization"], ruth, &organization.MemberRoleSet{
		OrganizationID: id("acme"), MemberID: id("kim"), Role: organization.Admin,
	})
	f.append(streams["organization"], ruth, &organization.ProjectAccessSet{
		OrganizationID: id("acme"), MemberID: id("kim"), ProjectID: id("hr"),
	})
	f.append(streams["project"], "operator root (says: lee)", &project.CapsSet{
		ProjectID: id("hr"), CreditCapTenths: new(int64(105)),
	})
	f.append(streams["project"], "operator root", &project.CapsSet{ProjectID: id("hr"), IngestionCap: new(int64(7))})
	f.append(streams["project"], ruth, &project.Described{ProjectID: id("hr"), Name: "HR", Description: "For all"})
	hook := &project.WebhookCreated{ProjectID: id("hr"), WebhookID: "whk_1", TokenHash: "secret", Settings: webhook.Settings{
		Name: "Tickets", ContentPath: "$.text",
	}}
	f.append(streams["project"], ruth, hook)
	changed := hook.Settings
	changed.ContentPath = "$.body"
	changed.Filters = []webhook.Filter{{Path: "$.kind", Operator: webhook.Is, Values: []string{"note"}}}
	f.append(streams["project"], ruth, &project.WebhookChanged{ProjectID: id("hr"), WebhookID: "whk_1", Settings: changed})
	f.append(streams["project"], "key:"+id("key").String(), &project.WebhookDeleted{ProjectID: id("hr"), WebhookID: "whk_1"})
	put := audience.Put{ProjectID: id("hr"), AudienceID: id("team"), Slug: "team", Kind: audience.KindRule, Rule: rule("a")}
	f.append(streams["audiences"], ruth, &put)
	f.append(streams["audiences"], ruth, &put) // unchanged
	put.Rule = rule("a", "b")
	f.append(streams["audiences"], ruth, &put)
	f.append(streams["audiences"], "person:"+id("gone").String(), &audience.Removed{
		ProjectID: id("hr"), AudienceID: id("team"),
	})
	f.want(owner, history.Query{Most: 4},
		"removed person removed the audience team | kind: rule → none | rule: team is one of a, b or boss is there → none",
		"ruth@acme.example wrote the audience team | rule: team is one of a or boss is there → team is one of a, b or "+
			"boss is there",
		"ruth@acme.example wrote the audience team | kind: rule | rule: team is one of a or boss is there",
		"Key agent deleted the webhook Tickets | name: Tickets → none | content path: $.body → none | "+
			"filters: $.kind is note → none",
		"ruth@acme.example changed the webhook Tickets | content path: $.text → $.body | filters: none → $.kind is note",
		"ruth@acme.example created the webhook Tickets | name: Tickets | content path: $.text",
		"ruth@acme.example described the project hr | description: none → For all",
		"Operator root set the caps of hr | ingestion cap: none → 7 | credit cap: 10.5 → none",
		"lee (operator root) set the caps of hr | credit cap: 10.5",
		"ruth@acme.example took the access to hr from removed person | access: write → none",
		"ruth@acme.example gave removed person the role admin | role: member → admin",
		"ruth@acme.example gave removed person write in hr | access: write",
		"The management key made removed person a member with the role member | role: member",
		"The operator created the project hr | name: HR",
	)
	f.want(owner, history.Query{Thing: "member:" + id("kim").String(), By: ruth, Kind: "organization.member-role-set"},
		"ruth@acme.example gave removed person the role admin | role: member → admin")
	f.want(owner, history.Query{By: history.OfOperator, From: noon.Add(4 * time.Minute)},
		"Operator root set the caps of hr | ingestion cap: none → 7 | credit cap: 10.5 → none",
		"lee (operator root) set the caps of hr | credit cap: 10.5")
}

func TestList_MembersByName(t *testing.T) {
	f := newFixture(t)
	ids := func(from, to int) (ids []uuid.UUID) {
		for n := from; n < to; n++ {
			ids = append(ids, id(fmt.Sprint("member ", n)))
		}
		return ids
	}
	var log projectiontest.Log
	log.Append(stream.Registry, &registry.ProjectCreated{OrganizationID: id("acme"), ProjectID: id("hr"), Slug: "hr"})
	for n := range 3 { // all others are removed
		log.Append(stream.Name(stream.Identity, id(fmt.Sprint("member ", n))), &identity.Appeared{
			ProjectID: id("hr"), Identity: fmt.Sprint("m", n), Origin: identity.OriginAPI,
		})
	}
	projectiontest.Apply(t, f.db, directory.New(f.journal, stream.Namespaces{}, nil), log.Facts...)
	put := audience.Put{
		ProjectID: id("hr"), AudienceID: id("list"), Slug: "list", Kind: audience.KindFixed, Members: ids(0, 4),
	}
	f.append(streams["audiences"], ruth, &put)
	put.Members = ids(2, 62)
	f.append(streams["audiences"], ruth, &put)
	page, err := f.List(t.Context(), ofHR, history.Query{Most: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := page.Events[0].Changes[0]
	if c.Before != "4" || c.After != "60" || len(c.Added) != history.MaxItems || c.MoreAdded != 8 ||
		c.Added[0] != history.Erased {
		t.Errorf("%+v", c)
	}
	if diff := cmp.Diff([]string{"m0", "m1"}, c.Removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
}

func TestList_TraitsAndErasure(t *testing.T) {
	f := newFixture(t)
	traits := func(pairs ...string) *identity.TraitsReplaced {
		inline := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			inline[pairs[i]] = pairs[i+1]
		}
		return &identity.TraitsReplaced{ProjectID: id("hr"), Record: identity.Record{
			Identity: "ana", Traits: identity.Traits{Inline: inline},
		}}
	}
	thing := history.Query{Thing: "identity:" + id("ana").String()}
	f.append(streams["ana"], ruth, &identity.Appeared{ProjectID: id("hr"), Identity: "ana", Origin: identity.OriginAPI})
	f.append(streams["ana"], ruth, traits("team", "a", "town", "x"))
	f.append(streams["ana"], ruth, traits("team", "b"))
	f.want(ofHR, thing,
		"ruth@acme.example replaced the traits of ana | trait team: a → b | trait town: x → none",
		"ruth@acme.example replaced the traits of ana | trait team: none → a | trait town: none → x",
		"The identity ana appeared (api), by ruth@acme.example",
	)
	hidden := ofHR
	hidden.HidesTexts = true
	for _, line := range f.lines(hidden, thing) {
		if strings.Contains(line, "ana") || strings.Contains(line, "team") {
			t.Errorf("who may see no texts sees %s", line)
		}
	}
	t.Log("the event with the value before left the log, and its row is not gone yet")
	if err := f.store.Truncate(t.Context(), streams["ana"], 2); err != nil {
		t.Fatal(err)
	}
	f.want(ofHR, history.Query{Thing: thing.Thing, Most: 1},
		"ruth@acme.example replaced the traits of ana | traits: erased → team: b",
		"ruth@acme.example replaced the traits of …",
		"The identity … appeared (…), by ruth@acme.example",
	)
	t.Log("the removal takes what was before")
	f.append(streams["ana"], ruth, &identity.Removed{ProjectID: id("hr")})
	f.want(ofHR, thing, "ruth@acme.example removed an identity")
}

// Who deleted a text is known before and after its erasure, by name.
func TestList_DeletedText(t *testing.T) {
	f := newFixture(t)
	point := id("point")
	name := stream.Name(stream.DataPoint, point)
	accepted := &datapoint.RevisionAccepted{Send: datapoint.Send{ProjectID: id("hr"), Items: 1}}
	accepted.Effect = datapoint.State{SourceID: "note", Revision: 1}
	f.append(name, "key:"+id("key").String(), accepted)
	accepted.Effect.Revision, accepted.Effect.BodyAt = 2, 1
	f.append(name, ruth, accepted)
	thing := history.Query{Thing: history.OfDataPoint + ":" + point.String()}
	f.want(ofHR, thing, "ruth@acme.example corrected a text (revision 2)")
	at := noon.Add(time.Hour)
	f.append(name, ruth, &datapoint.Deleted{ProjectID: id("hr"), DeletionID: id("d"), DeletedAt: at, Single: true})
	f.want(ofHR, thing, "ruth@acme.example deleted a text")
	facts := &deletion.FactsKept{
		OrganizationID: id("acme"), ProjectID: id("hr"), DataPoint: point, DeletedAt: at, Principal: ruth, Single: true,
		Facts: []deletion.RetainedFact{},
	}
	f.append(stream.Name(stream.Deletion, id("d")), "finisher", facts)
	f.want(ofHR, thing, "ruth@acme.example deleted a text")
	one, err := f.One(t.Context(), ofHR, history.DeletionID(point))
	if err != nil || !one.IsErased || !one.At.Equal(at) || one.By.Name != "ruth@acme.example" {
		t.Errorf("%+v, %v", one, err)
	}
}

func TestOne_WholeEventWithoutSecrets(t *testing.T) {
	f := newFixture(t)
	f.append(streams["project"], ruth, &project.KeyCreated{
		ProjectID: id("hr"), KeyID: id("key"), Name: "agent", Hash: "secret", Suffix: "abc",
	})
	page, err := f.List(t.Context(), ofHR, history.Query{Thing: history.OfKey + ":" + id("key").String()})
	if err != nil || len(page.Events) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	created := page.Events[0].ID
	one, err := f.One(t.Context(), ofHR, created)
	if err != nil {
		t.Fatal(err)
	}
	if one.Stream != streams["project"] || one.Position == 0 || !strings.Contains(string(one.Metadata), ruth) ||
		!strings.Contains(string(one.Payload), `"hash": "(hidden)"`) || strings.Contains(string(one.Payload), "secret") {
		t.Errorf("%+v: %s %s", one, one.Metadata, one.Payload)
	}
	writer := ofHR
	writer.May = history.Write
	foreign := history.Viewer{Organization: id("theirs"), May: history.Manage}
	otherProject := ofHR
	otherProject.Project = id("their hr")
	for name, v := range map[string]history.Viewer{
		"who may not see keys": writer, "another organization": foreign, "another project": otherProject,
	} {
		_, err := f.One(t.Context(), v, created)
		if wrong, is := errors.AsType[*fault.Error](err); !is || wrong.Kind != fault.NotFound {
			t.Errorf("%s is answered %v", name, err)
		}
		for _, line := range f.lines(v, history.Query{}) {
			if strings.Contains(line, "key") {
				t.Errorf("%s sees %s", name, line)
			}
		}
		if lines := f.lines(v, history.Query{Thing: history.OfKey + ":" + id("key").String()}); len(lines) > 0 {
			t.Errorf("%s sees of the key: %s", name, lines)
		}
	}
}

func TestList_PageByPage(t *testing.T) {
	f := newFixture(t)
	const all = 2*history.PageSize + 7
	for n := range all {
		f.append(streams["project"], "operator", &project.CapsSet{ProjectID: id("hr"), IngestionCap: new(int64(n))})
	}
	lines := f.lines(ofHR, history.Query{Kind: "project.caps-set"})
	if len(lines) != all || !strings.HasSuffix(lines[0], fmt.Sprintf("%d → %d", all-2, all-1)) {
		t.Errorf("%d events, the newest is %s", len(lines), lines[0])
	}
	_, err := f.List(t.Context(), ofHR, history.Query{After: "x"})
	if wrong, is := errors.AsType[*fault.Error](err); !is || wrong.Kind != fault.Invalid {
		t.Errorf("another cursor is answered %v", err)
	}
}

// A visit has a row of its organization, which goes with its stream.
func TestProjector_Visits(t *testing.T) {
	db, p := pgtest.Database(t), history.New()
	projectiontest.Make(t, db, p)
	of, other, ana, ben := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	noon := time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)
	var log projectiontest.Log
	visits := func(in, person uuid.UUID) string { return stream.VisitsName(in, person, "2026-11") }
	add := func(in, person uuid.UUID, hour int, e func(visit.Visit) event.Event) {
		at := noon.Add(time.Duration(hour) * time.Hour)
		log.Append(visits(in, person), e(visit.Visit{OrganizationID: in, PersonID: person, VisitedAt: at}))
		details := &log.Facts[len(log.Facts)-1].Details
		details.Principal, details.At = "person:"+person.String(), at
	}
	signIn := func(v visit.Visit) event.Event { return &visit.SignedIn{Visit: v, Way: visit.Password} }
	export := func(v visit.Visit) event.Event { return &visit.Exported{Visit: v, What: "members", Format: "csv"} }
	add(of, ana, 0, signIn)
	add(of, ana, 2, signIn)
	add(of, ana, 3, export)
	add(of, ben, 1, signIn)
	add(other, ana, 5, signIn)
	projectiontest.Apply(t, db, p, log.Facts...)
	rows := func() map[string]int {
		t.Helper()
		dump, err := projectiontest.Dump(t.Context(), db, p)
		runtest.Must(t, err)
		return map[string]int{"entries": len(dump["entries"]), "about": len(dump["about"])}
	}
	if diff := cmp.Diff(map[string]int{"entries": 5, "about": 5}, rows()); diff != "" {
		t.Errorf("rows: %s", diff)
	}
	log.Append(eventstore.SystemStream, &eventstore.Tombstoned{Stream: visits(of, ana)})
	projectiontest.Apply(t, db, p, log.Facts[len(log.Facts)-1])
	if diff := cmp.Diff(map[string]int{"entries": 2, "about": 2}, rows()); diff != "" {
		t.Errorf("rows after the end of a stream: %s", diff)
	}
	projectiontest.Empty(t, db, p)
	projectiontest.Apply(t, db, p, log.Facts...)
	if diff := cmp.Diff(map[string]int{"entries": 2, "about": 2}, rows()); diff != "" {
		t.Errorf("rows of one page: %s", diff)
	}
}
