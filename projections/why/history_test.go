package why

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/auth"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func id(name string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)) }

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

type fixture struct {
	Histories
	t       *testing.T
	store   eventstore.Store
	journal eventstore.Journal
	n       int
}

func newFixture(t *testing.T) *fixture {
	store := eventstoretest.NewMemory()
	names := known{id("ana"): "ana@acme.example", id("key"): "agent", id("p"): "support"}
	return &fixture{
		Histories: Histories{Log: store, Names: names}, t: t, store: store,
		journal: eventstore.Journal{Store: store, Codec: eventstoretest.Codec(t)},
	}
}

// append appends an event of a principal, a minute after the one before.
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
}

// lines are the events as "name by principal: fields", read page by page.
func (f *fixture) lines(read func(before string) (HistoryPage, error)) (lines []string, pages int) {
	f.t.Helper()
	for before := ""; ; {
		page, err := read(before)
		if err != nil || len(page.Events) > HistoryPageSize {
			f.t.Fatalf("%d events, %v", len(page.Events), err)
		}
		pages++
		for _, e := range page.Events {
			line := e.Name + " by " + strings.TrimSpace(e.By.Kind+" "+e.By.Name) + ":"
			for _, v := range e.Fields {
				line += " " + v.Name + "=" + v.Value
			}
			lines = append(lines, line)
		}
		if before = page.Next; before == "" {
			return lines, pages
		}
	}
}

func TestOf_WhoDidWhat(t *testing.T) {
	f := newFixture(t)
	of := stream.Name(stream.Project, id("p"))
	ana := auth.Principal{Kind: auth.Person, KeyID: id("ana")}.Name()
	f.append(of, "management-key:"+id("mk").String(),
		&project.KeyCreated{ProjectID: id("p"), KeyID: id("key"), Name: "agent", Hash: "secret hash", Suffix: "abc"})
	f.append(of, ana, &project.CapsSet{ProjectID: id("p"), CreditCapTenths: new(int64(105))})
	f.append(of, ana, &project.KeyRevealed{ProjectID: id("p"), KeyID: id("key")})
	f.append(of, "person:"+id("gone").String(), &project.Archived{ProjectID: id("p")})
	f.append(of, "key:"+id("key").String(), &project.KeyRevoked{ProjectID: id("p"), KeyID: id("other")})
	f.append(of, "operator", &project.WebhookPaused{ProjectID: id("p"), WebhookID: "whk_1"})
	want := []string{
		"project.webhook-paused by operator: webhook=whk_1",
		"project.key-revoked by key agent: key=" + id("other").String(),
		"project.archived by person " + person.RemovedName + ":",
		"project.key-revealed by person ana@acme.example: key=agent",
		"project.caps-set by person ana@acme.example: ingestionCap=none creditCap=10.5",
		"project.key-created by management-key: key=agent name=agent suffix=abc",
	}
	for thing, want := range map[Thing][]string{
		OfProject(id("p")):              want,
		OfProject(id("other")):          nil,
		OfKey(id("p"), id("key")):       {want[3], want[5]},
		OfWebhook(id("p"), "whk_1"):     want[:1],
		OfWebhook(id("other"), "whk_1"): nil,
	} {
		got, _ := f.lines(func(before string) (HistoryPage, error) { return f.Of(t.Context(), thing, before) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", thing, diff)
		}
	}
	page, err := f.Of(t.Context(), OfProject(id("p")), "")
	if err != nil || !page.Events[0].At.Equal(noon.Add(5*time.Minute)) {
		t.Errorf("the newest event is of %s, %v", page.Events[0].At, err)
	}
}

func TestOf_PageByPage(t *testing.T) {
	f := newFixture(t)
	of := stream.Name(stream.Project, id("p"))
	const all, ofKey = 2*HistoryPageSize + 7, 3
	for n := range all {
		key := id("other")
		if n%40 == 0 {
			key = id("key")
		}
		f.append(of, "operator", &project.KeyRevealed{ProjectID: id("p"), KeyID: key})
	}
	got, pages := f.lines(func(before string) (HistoryPage, error) { return f.Of(t.Context(), OfProject(id("p")), before) })
	if len(got) != all || pages != 3 {
		t.Errorf("%d events on %d pages", len(got), pages)
	}
	got, pages = f.lines(func(before string) (HistoryPage, error) { return f.Of(t.Context(), OfKey(id("p"), id("key")), before) })
	if len(got) != ofKey || pages != 1 {
		t.Errorf("%d events of a key on %d pages", len(got), pages)
	}
	for _, before := range []string{"x", "-1", "0", "9223372036854775808"} {
		if _, err := f.Of(t.Context(), OfProject(id("p")), before); err == nil {
			t.Errorf("there is a page before %q", before)
		}
	}
}

// A stream of big events is read in several pages, each of which holds some megabytes at most.
func TestOf_BigEvents(t *testing.T) {
	f := newFixture(t)
	p := auth.Project{Namespace: id("namespace")}
	of := stream.Name(stream.Identity, stream.IdentityID(p.Namespace, "ana"))
	for range 20 {
		f.append(of, "operator", &identity.TraitsReplaced{Record: identity.Record{
			Identity: "ana", Traits: identity.Traits{Inline: map[string]string{"note": strings.Repeat("secret ", 100_000)}},
		}})
	}
	got, pages := f.lines(func(before string) (HistoryPage, error) { return f.Of(t.Context(), OfIdentity(p, "ana"), before) })
	if len(got) != 20 || pages < 2 {
		t.Errorf("%d events on %d pages", len(got), pages)
	}
	for _, line := range got {
		if strings.Contains(line, "secret") {
			t.Errorf("a text of a customer is shown: %.80s", line)
		}
	}
}

func TestOf_ErasedThing(t *testing.T) {
	f := newFixture(t)
	p := auth.Project{Namespace: id("namespace")}
	of := stream.Name(stream.DataPoint, stream.DataPointID(p.Namespace, "call"))
	f.append(of, "operator", &project.Archived{})
	if _, err := f.store.Tombstone(t.Context(), of, 0); err != nil {
		t.Fatal(err)
	}
	page, err := f.Of(t.Context(), OfDataPoint(p, "call"), "")
	if err != nil || !page.IsErased || len(page.Events) > 0 {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestManagement_OrganizationAndItsProjects(t *testing.T) {
	f := newFixture(t)
	acme := stream.Name(stream.Organization, id("acme"))
	var projects []uuid.UUID
	f.append(stream.Registry, "operator", &registry.OrganizationCreated{OrganizationID: id("acme"), Name: "Acme"})
	f.append(stream.Registry, "operator", &registry.OrganizationCreated{OrganizationID: id("other"), Name: "Other"})
	f.append(stream.Name(stream.Project, id("foreign")), "operator", &project.Archived{ProjectID: id("foreign")})
	want := []string{"registry.organization-created by operator: name=Acme"}
	for n := range 3 {
		p := id(fmt.Sprint("project ", n))
		projects = append(projects, p)
		f.append(stream.Registry, "operator",
			&registry.ProjectCreated{OrganizationID: id("acme"), ProjectID: p, Name: "P", Slug: "p"})
		want = append(want, "registry.project-created by operator: name=P slug=p")
	}
	for n := range HistoryPageSize {
		f.append(acme, "operator", &organization.SecondFactorSet{OrganizationID: id("acme"), Required: n%2 == 0})
		want = append(want, "organization.second-factor-set by operator: required="+[]string{"yes", "no"}[n%2])
		f.append(stream.Name(stream.Project, projects[n%3]), "operator", &project.Archived{ProjectID: projects[n%3]})
		want = append(want, "project.archived by operator:")
	}
	f.append(acme, "operator", &organization.ProjectAccessSet{MemberID: id("ana"), ProjectID: id("p")})
	want = append(want, "organization.project-access-set by operator: person=ana@acme.example project=support access=none")
	slices.Reverse(want)
	got, pages := f.lines(func(before string) (HistoryPage, error) {
		return f.Management(t.Context(), id("acme"), projects, before)
	})
	if diff := cmp.Diff(want, got); diff != "" || pages != 3 {
		t.Errorf("%d pages (-want +got):\n%s", pages, diff)
	}
}

// What is left out of a long history is not passed over in silence.
func TestManagement_ProjectWithALongHistory(t *testing.T) {
	f := newFixture(t)
	for range maxScanned + 2*maxChunk {
		f.append(stream.Name(stream.Project, id("p")), "operator", &project.Archived{ProjectID: id("p")})
	}
	for before := ""; ; {
		page, err := f.Management(t.Context(), id("acme"), []uuid.UUID{id("p")}, before)
		if err != nil {
			t.Fatal(err)
		}
		if page.IsCut {
			return
		}
		if before = page.Next; before == "" {
			t.Fatal("the last page has all events")
		}
	}
}

// Each event of the catalogue is shown by fields that it has, without what no page may show.
func TestFields_OfEveryEvent(t *testing.T) {
	listed := map[string]bool{}
	for _, construct := range domain.Catalog {
		name := construct().EventType()
		payload, err := os.ReadFile(filepath.Join("..", "..", "domain", "testdata", "events", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		meta, err := json.Marshal(event.NewMeta("operator", noon))
		if err != nil {
			t.Fatal(err)
		}
		e, is := eventOf(Thing{}, eventstore.Recorded{Type: name, Data: payload, Meta: meta})
		listed[e.Name] = true
		if n := len(strings.Fields(shown[e.Name])); !is || n != len(e.Fields) {
			t.Errorf("%s has %d of %d fields", name, len(e.Fields), n)
		}
		for _, f := range e.Fields {
			for _, secret := range []string{"Inline", "SourceID", "Author", "Identity", "9f86d08", "hash", "stream", "values"} {
				if strings.Contains(f.Value, secret) {
					t.Errorf("%s shows %s: %q", name, f.Name, f.Value)
				}
			}
		}
	}
	for name := range shown {
		if !listed[name] {
			t.Errorf("there is no event %s", name)
		}
	}
}

func TestLatest_ProjectWithItsCreationAndItsCaps(t *testing.T) {
	f := newFixture(t)
	of := stream.Name(stream.Project, id("p"))
	ana := auth.Principal{Kind: auth.Person, KeyID: id("ana")}.Name()
	for _, name := range []string{"p", "other"} {
		f.append(stream.Registry, ana, &registry.ProjectCreated{ProjectID: id(name), Slug: name, Name: name})
	}
	f.append(of, ana, &project.CapsSet{ProjectID: id("p")})
	f.append(of, ana, &project.Archived{ProjectID: id("p")})
	for _, c := range []struct {
		of   Thing
		most int
		want []string
	}{
		{OfProject(id("p")), 10, []string{"project.archived", "project.caps-set", "registry.project-created"}},
		{OfProject(id("p")), 2, []string{"project.archived", "project.caps-set"}},
		{OfCaps(id("p")), 10, []string{"project.caps-set"}},
	} {
		events, err := f.Latest(t.Context(), c.of, c.most)
		var got []string
		for _, e := range events {
			if got = append(got, e.Name); e.By.Name != "ana@acme.example" {
				t.Errorf("%s by %+v", e.Name, e.By)
			}
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("the last %d are %q, %v, want %q", c.most, got, err, c.want)
		}
	}
}
