package access_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/projectiontest"
	_ "github.com/annals-project/annals/internal/seedtest"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func id(name string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)) }

func hash(key string) [32]byte { return sha256.Sum256([]byte(key)) }

func hashText(key string) string {
	sum := hash(key)
	return hex.EncodeToString(sum[:])
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func applied(t *testing.T, w *writer) access.Queries {
	t.Helper()
	db := pgtest.Database(t)
	projectiontest.Make(t, db, access.New())
	projectiontest.Apply(t, db, access.New(), w.Facts...)
	return access.Queries{DB: db, Namespaces: namespaces}
}

var namespaces = stream.NewNamespaces(make([]byte, 32))

// storedNamespace returns a project's namespace in the log.
func storedNamespace(slug string) uuid.UUID { return id("namespace of " + slug) }

func projectOf(slug string, number int64) auth.Project {
	namespace, err := namespaces.Of(storedNamespace(slug))
	if err != nil {
		panic(err)
	}
	return auth.Project{ID: id(slug), Number: number, Slug: slug, Namespace: namespace}
}

func TestQuery_KeyByHash(t *testing.T) {
	w := &writer{}
	w.organization("org")
	w.organization("new")
	w.managementKey("new", "management key of the new")
	w.project("new", "first", 4)
	w.key("first", "key of the new")
	w.prepared("org")
	w.plan("org", metering.Enterprise)
	w.plan("org", metering.Flex)
	w.spendCap("org", new(int64(70)))
	w.managementKey("org", "old management key")
	w.managementKey("org", "management key")
	w.project("org", "live", 1)
	w.project("org", "archived", 2)
	w.project("org", "back", 3)
	w.key("live", "key")
	w.key("live", "revoked")
	w.key("archived", "key of the archived")
	w.key("back", "key of the back")
	w.revoke("live", "revoked")
	w.archive("archived", true)
	w.archive("back", true)
	w.archive("back", false)
	w.caps("live", new(int64(5)), new(int64(60)))
	w.caps("back", new(int64(5)), new(int64(60)))
	w.caps("back", nil, new(int64(0)))
	for _, slug := range []string{"live", "archived", "first"} {
		w.webhook(slug, "hook of "+slug)
	}
	w.pauseWebhook("live", "hook of live", true)
	w.rotateToken("live", "hook of live", "new token")
	w.webhook("live", "gone")
	w.deleteWebhook("live", "gone")
	q := applied(t, w)
	type answer struct {
		Holder auth.Holder
		OK     bool
	}
	flex := metering.Caps{Plan: metering.Flex, SpendCapTenths: new(int64(70))}
	capped := func(ingestion, credit *int64) metering.Caps {
		l := flex
		l.IngestionCap, l.CreditCapTenths = ingestion, credit
		return l
	}
	key := func(name, org string, p auth.Project, l metering.Caps) auth.Principal {
		return auth.Principal{
			Kind:           auth.ProjectKey,
			KeyID:          id(name),
			KeyName:        name,
			KeyPrefix:      "svc_sk_",
			OrganizationID: id(org),
			Project:        p,
			Limits:         l,
		}
	}
	manager := func(name, org string, l metering.Caps) auth.Principal {
		return auth.Principal{Kind: auth.ManagementKey, KeyID: id(name), KeyPrefix: "svc_mk_", OrganizationID: id(org), Limits: l}
	}
	selfHosted := metering.Caps{Plan: metering.SelfHosted}
	hook := func(name, token, org string, p auth.Project, l metering.Caps) auth.Principal {
		return auth.Principal{
			Kind: auth.WebhookToken, KeyID: id(token), KeyName: name, KeyPrefix: name, OrganizationID: id(org), Project: p, Limits: l,
			Webhook: &auth.Webhook{
				ID: name, Paused: name == "hook of live", Archived: name == "hook of archived", Settings: settingsOf(name),
			},
		}
	}
	for _, c := range []struct {
		kind auth.Kind
		key  string
		want answer
	}{
		{auth.ProjectKey, "key", answer{auth.Holder{Principal: key("key", "org", projectOf("live", 1), capped(new(int64(5)), new(int64(60))))}, true}},
		{auth.ProjectKey, "key of the archived", answer{auth.Holder{Principal: key("key of the archived", "org", projectOf("archived", 2), flex), Archived: true}, true}},
		{auth.ProjectKey, "key of the back", answer{auth.Holder{Principal: key("key of the back", "org", projectOf("back", 3), capped(nil, new(int64(0))))}, true}},
		{auth.ProjectKey, "key of the new", answer{auth.Holder{Principal: key("key of the new", "new", projectOf("first", 4), selfHosted), Preparing: true}, true}},
		{auth.ProjectKey, "revoked", answer{}},
		{auth.ProjectKey, "unknown", answer{}},
		{auth.ProjectKey, "management key", answer{}},
		{auth.ManagementKey, "management key", answer{auth.Holder{Principal: manager("management key", "org", flex)}, true}},
		{auth.ManagementKey, "management key of the new", answer{auth.Holder{Principal: manager("management key of the new", "new", selfHosted), Preparing: true}, true}},
		{auth.ManagementKey, "old management key", answer{}},
		{auth.ManagementKey, "key", answer{}},
		{auth.AgentToken, "key", answer{}},
		{auth.WebhookToken, "new token", answer{auth.Holder{Principal: hook("hook of live", "new token", "org", projectOf("live", 1), capped(new(int64(5)), new(int64(60))))}, true}},
		{auth.WebhookToken, "token of hook of archived", answer{auth.Holder{Principal: hook("hook of archived", "token of hook of archived", "org", projectOf("archived", 2), flex), Archived: true}, true}},
		{auth.WebhookToken, "token of hook of first", answer{auth.Holder{Principal: hook("hook of first", "token of hook of first", "new", projectOf("first", 4), selfHosted), Preparing: true}, true}},
		{auth.WebhookToken, "token of hook of live", answer{}},
		{auth.WebhookToken, "token of gone", answer{}},
		{auth.WebhookToken, "key", answer{}},
		{auth.ProjectKey, "new token", answer{}},
	} {
		t.Run(fmt.Sprint(c.kind, ", ", c.key), func(t *testing.T) {
			var got answer
			var err error
			if got.Holder, got.OK, err = q.KeyByHash(t.Context(), c.kind, hash(c.key)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQuery_ProjectsAndKeysOfOneOrganization(t *testing.T) {
	w := &writer{}
	w.Append(stream.Registry, &registry.LogOpened{LogID: id("log"), OpenedAt: noon})
	w.organization("org")
	w.organization("other")
	w.project("org", "one", 1)
	w.project("other", "foreign", 2)
	w.project("org", "two", 3)
	w.key("one", "first")
	w.key("foreign", "second")
	w.revoke("one", "first")
	w.archive("two", true)
	w.caps("two", new(int64(7)), nil)
	w.describe("two", "TWO", "the second")
	w.reads("one", project.ReadsKept, 40)
	w.reads("one", project.ReadsOff, 365)
	w.reads("two", project.ReadsKept, 30)
	q := applied(t, w)
	ctx := t.Context()

	row := func(slug string, number int64, archived bool) access.Project {
		var ingestionCap *int64
		var description string
		named, readDays := projectOf(slug, number), 365
		if slug == "two" {
			ingestionCap, description = new(int64(7)), "the second"
			named.Reads, readDays = project.ReadsKept, 30
		}
		return access.Project{
			Project:        named,
			OrganizationID: id("org"),
			Name:           strings.ToUpper(slug),
			Description:    description,
			Archived:       archived,
			ReadDays:       readDays,
			IngestionCap:   ingestionCap,
			CreatedAt:      noon,
		}
	}
	projects, err := q.Projects(ctx, id("org"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]access.Project{row("one", 1, false), row("two", 3, true)}, projects); diff != "" {
		t.Errorf("projects (-want +got):\n%s", diff)
	}
	if got, ok, err := q.ProjectBySlug(ctx, id("org"), "two"); err != nil || !ok || !cmp.Equal(got, row("two", 3, true)) {
		t.Errorf("project two: %v, %v, %v", got, ok, err)
	}
	if got, ok, err := q.ProjectBySlug(ctx, id("org"), "foreign"); err != nil || ok {
		t.Errorf("a slug of another organization: %v, %v, %v", got, ok, err)
	}
	named := auth.Named{Project: row("two", 3, true).Project, IngestionCap: new(int64(7)), Archived: true}
	if got, ok, err := q.ProjectNamed(ctx, id("org"), "two"); err != nil || !ok || !cmp.Equal(got, named) {
		t.Errorf("project named two: %v, %v, %v", got, ok, err)
	}
	for _, slug := range []string{"foreign", "Two", ""} {
		if got, ok, err := q.ProjectNamed(ctx, id("org"), slug); err != nil || ok || got != (auth.Named{}) {
			t.Errorf("the project named %q: %v, %v, %v", slug, got, ok, err)
		}
	}
	if got, ok, err := q.ProjectByID(ctx, id("one")); err != nil || !ok || !cmp.Equal(got, row("one", 1, false)) {
		t.Errorf("project one: %v, %v, %v", got, ok, err)
	}
	revoked := noon.Add(time.Hour)
	keys, err := q.Keys(ctx, id("one"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]tenants.Key{{
		ID: id("first").String(), Project: "one", Name: "first", Prefix: "svc_sk_", Suffix: "abc", CreatedAt: noon, RevokedAt: &revoked,
	}}, keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if got, ok, err := q.LogID(ctx); err != nil || !ok || got != id("log") {
		t.Errorf("log: %v, %v, %v", got, ok, err)
	}
}

func TestQuery_Organizations(t *testing.T) {
	w := &writer{}
	w.organization("first")
	for _, email := range []string{"ana@example.com", "owner@example.com", "member@example.com"} {
		w.person(email)
	}
	w.Append(stream.Registry, &registry.OrganizationCreated{
		OrganizationID: id("second"),
		Name:           "second",
		Plan:           metering.PayAsYouGo,
		OwnerID:        id("ana@example.com"),
		CreatedAt:      noon.Add(time.Hour),
	})
	w.managementKey("first", "key")
	w.prepared("first")
	w.plan("first", metering.Enterprise)
	w.member("first", "owner@example.com", organization.Owner)
	w.member("first", "member@example.com", organization.Member)
	w.of("first", &organization.VisitsKeptSet{OrganizationID: id("first"), Days: 90, SetAt: noon})
	w.spendCap("first", new(int64(1)))
	w.spendCap("first", nil)
	w.spendCap("second", new(int64(0)))
	w.of("first", &organization.CreditsGranted{
		OrganizationID: id("first"),
		Kind:           metering.Bought,
		Tenths:         5,
		Month:          "2026-11",
		GrantedAt:      noon,
	})
	q := applied(t, w)
	owner, creator, key := id("owner@example.com"), id("ana@example.com"), id("key")
	first := access.Organization{
		ID:              id("first"),
		Name:            "first",
		Plan:            metering.Enterprise,
		OwnerID:         &owner,
		OwnerEmail:      "owner@example.com",
		Prepared:        true,
		ManagementKeyID: &key,
		CreatedAt:       noon,
		VisitDays:       90,
	}
	second := access.Organization{
		ID:             id("second"),
		Name:           "second",
		Plan:           metering.PayAsYouGo,
		SpendCapTenths: new(int64(0)),
		OwnerID:        &creator,
		OwnerEmail:     "ana@example.com",
		CreatedAt:      noon.Add(time.Hour),
		VisitDays:      organization.DefaultVisitDays,
	}
	for _, want := range []access.Organization{first, second} {
		got, ok, err := q.OrganizationByID(t.Context(), want.ID)
		if err != nil || !ok {
			t.Errorf("%s: %v, %v", want.Name, ok, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Name, diff)
		}
	}
	if got, ok, err := q.OrganizationByID(t.Context(), id("third")); err != nil || ok {
		t.Errorf("third: %v, %v, %v", got, ok, err)
	}
}

func TestQuery_EmptyLog(t *testing.T) {
	if got, ok, err := applied(t, &writer{}).LogID(t.Context()); err != nil || ok {
		t.Errorf("log: %v, %v, %v", got, ok, err)
	}
}

func TestProjector_ContradictingEvents(t *testing.T) {
	for name, write := range map[string]func(*writer){
		"a key of no organization": func(w *writer) { w.managementKey("unknown", "key") },
		"the end of no key":        func(w *writer) { w.revoke("unknown", "key") },
		"the plan of nothing":      func(w *writer) { w.plan("unknown", metering.Flex) },
		"the caps of nothing":      func(w *writer) { w.caps("unknown", nil, nil) },
		"the archive of nothing":   func(w *writer) { w.archive("unknown", true) },
		"a pause of no webhook":    func(w *writer) { w.pauseWebhook("unknown", "hook", true) },
		"a change of a deleted webhook": func(w *writer) {
			w.webhook("p", "hook")
			w.deleteWebhook("p", "hook")
			w.changeWebhook("p", "hook", "other")
		},
		"a hash that is none": func(w *writer) {
			w.Append(stream.Name(stream.Project, id("p")), &project.KeyCreated{Hash: "abc"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, w := pgtest.Database(t), &writer{}
			projectiontest.Make(t, db, access.New())
			write(w)
			if _, err := projectiontest.Rows(t.Context(), db, access.New(), [][]eventstore.DecodedEvent{w.Facts}); err == nil {
				t.Error("it was applied")
			}
		})
	}
}

func TestProjector_PagesOfAnySize(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, access.New())
	rapid.Check(tt, func(t *rapid.T) {
		w := draw(t)
		var single [][]eventstore.DecodedEvent
		for _, f := range w.Facts {
			single = append(single, []eventstore.DecodedEvent{f})
		}
		want := rows(t, tt, db, single)
		if diff := cmp.Diff(want, rows(t, tt, db, projectiontest.Cut(t, w.Facts))); diff != "" {
			t.Fatalf("rows of pages differ from those of single events (-single +pages):\n%s", diff)
		}
	})
}

func rows(t *rapid.T, tt *testing.T, db *pgxpool.Pool, pages [][]eventstore.DecodedEvent) map[string][]string {
	tt.Helper()
	return projectiontest.RowsAfter(t, tt, db, access.New(), pages)
}

// draw draws the events of a registry and its organizations.
func draw(t *rapid.T) *writer {
	w := &writer{}
	w.Append(stream.Registry, &registry.LogOpened{LogID: id("log"), OpenedAt: noon})
	w.organization("org 0")
	var slugs, keys, hooks, emails []string
	owners := map[string]string{}
	for n := range rapid.IntRange(1, 30).Draw(t, "steps") {
		name := fmt.Sprint(n)
		switch step := rapid.IntRange(0, 17).Draw(t, "step"); {
		case step == 0:
			w.managementKey("org 0", "management "+name)
		case step == 1 || len(slugs) == 0:
			slugs = append(slugs, name)
			w.project("org 0", name, int64(n))
		case step == 2 || len(keys) == 0:
			slug := rapid.SampledFrom(slugs).Draw(t, "slug")
			keys, owners["key "+name] = append(keys, "key "+name), slug
			w.key(slug, "key "+name)
		case step == 17:
			w.describe(rapid.SampledFrom(slugs).Draw(t, "slug"), name, rapid.SampledFrom([]string{"", "a"}).Draw(t, "text"))
		case step == 3:
			key := rapid.SampledFrom(keys).Draw(t, "key")
			w.revoke(owners[key], key)
		case step == 11 || step > 11 && len(hooks) == 0:
			slug := rapid.SampledFrom(slugs).Draw(t, "slug")
			hooks, owners["hook "+name] = append(hooks, "hook "+name), slug
			w.webhook(slug, "hook "+name)
		case step > 11:
			at := rapid.IntRange(0, len(hooks)-1).Draw(t, "webhook")
			hook := hooks[at]
			switch step {
			case 12:
				w.changeWebhook(owners[hook], hook, "changed "+name)
			case 13, 14:
				w.pauseWebhook(owners[hook], hook, step == 13)
			case 15:
				w.rotateToken(owners[hook], hook, "token "+name)
			default:
				w.deleteWebhook(owners[hook], hook)
				hooks = slices.Delete(hooks, at, at+1)
			}
		case step == 6:
			w.plan("org 0",
				rapid.SampledFrom([]metering.Plan{metering.SelfHosted, metering.PayAsYouGo, metering.Enterprise}).Draw(t, "plan"))
		case step == 7:
			w.spendCap("org 0", rapid.Ptr(rapid.Int64Range(0, 3), true).Draw(t, "spend cap"))
		case step == 8:
			w.prepared("org 0")
			w.secondFactor("org 0", n%2 == 0)
		case step == 9:
			emails = w.drawPerson(t, emails, name)
		case step == 10:
			w.caps(
				rapid.SampledFrom(slugs).Draw(t, "slug"), rapid.Ptr(rapid.Int64Range(0, 3), true).Draw(t, "ingestion cap"),
				rapid.Ptr(rapid.Int64Range(0, 3), true).Draw(t, "credit cap"),
			)
		default:
			w.archive(rapid.SampledFrom(slugs).Draw(t, "slug"), step == 4)
		}
	}
	return w
}

// log is a log with a head, and the projections that apply it.
type log struct {
	waited []string
	late   error
}

func (*log) Head(context.Context) (eventstore.Position, error) { return 7, nil }

func (l *log) Wait(_ context.Context, position eventstore.Position, names ...string) error {
	if position == 7 {
		l.waited = append(l.waited, names...)
	}
	return l.late
}

// findable are two organizations, "first" and "second". Both have a project "twice".
func findable(t *testing.T) (access.Tenancy, *log) {
	t.Helper()
	w := &writer{}
	w.organization("first")
	w.organization("second")
	w.prepared("first")
	w.spendCap("first", new(int64(125)))
	w.project("first", "plan", 1)
	w.project("first", "shared", 2)
	w.project("second", "shared-too", 3)
	w.key("plan", "app")
	for i, org := range []string{"first", "second"} {
		w.Append(stream.Registry, &registry.ProjectCreated{
			OrganizationID: id(org), ProjectID: id("twice of " + org), Number: int64(4 + i), Slug: "twice", Name: "Twice",
			Namespace: storedNamespace("twice"), CreatedAt: noon,
		})
	}
	l := &log{}
	return access.Tenancy{Queries: applied(t, w), Head: projections.Head{Log: l, Waiter: l}}, l
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTenancy_Lists(t *testing.T) {
	of, l := findable(t)
	organizations, err := of.Organizations(t.Context(), "")
	if err != nil || len(organizations) != 2 || organizations[0].Projects != 3 || organizations[1].Projects != 2 {
		t.Fatalf("%+v, %v", organizations, err)
	}
	want := `{"id":"` + id("first").String() + `","name":"first","plan":"` + string(organizations[0].Plan) +
		`","createdAt":"2026-11-21T12:00:00Z","spendCap":12.5,` +
		`"isPrepared":true,"projects":3}`
	organizations[0].CreatedAt = new(organizations[0].CreatedAt.UTC())
	if diff := cmp.Diff(want, asJSON(t, organizations[0])); diff != "" {
		t.Errorf("organization (-want +got):\n%s", diff)
	}
	projects, err := of.Projects(t.Context(), "second")
	if err != nil || len(projects) != 2 || projects[0].Organization != "second" || projects[0].OrganizationID != id("second") {
		t.Errorf("%+v, %v", projects, err)
	}
	if all, err := of.Projects(t.Context(), ""); err != nil || len(all) != 5 || all[0].Slug != "plan" {
		t.Errorf("%+v, %v", all, err)
	}
	for _, name := range []string{"first", id("first").String(), strings.ToUpper(id("first").String())} {
		if p, err := of.Project(t.Context(), name, "plan"); err != nil || p.ID != id("plan") {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	p, k, err := of.Key(t.Context(), "", "plan", id("app").String())
	if err != nil || p.Slug != "plan" || k.Name != "app" || k.Project != "plan" || k.Key != "" {
		t.Errorf("%+v of %+v, %v", k, p, err)
	}
	if keys, err := of.Keys(t.Context(), "", "shared"); err != nil || len(keys) != 0 || asJSON(t, keys) != "[]" {
		t.Errorf("%+v, %v", keys, err)
	}
	if len(l.waited) == 0 || l.waited[0] != projection.Access {
		t.Errorf("waited for %v", l.waited)
	}
}

func TestTenancy_Refusals(t *testing.T) {
	of, l := findable(t)
	ctx := t.Context()
	second := func(_ any, err error) error { return err }
	third := func(_ tenants.ListedProject, _ tenants.Key, err error) error { return err }
	for want, err := range map[string]error{
		`there is no organization "third"`:                                  second(of.Organizations(ctx, "third")),
		`there are several organizations: name one with --org`:              second(of.Organization(ctx, "")),
		`there is no organization "none"`:                                   second(of.Projects(ctx, "none")),
		`there is no organization "nobody"`:                                 second(of.Project(ctx, "nobody", "plan")),
		`organization "second" has no project "plan"`:                       second(of.Project(ctx, "second", "plan")),
		`several organizations have a project "twice", name one with --org`: second(of.Project(ctx, "", "twice")),
		`there is no project "what"`:                                        second(of.Project(ctx, "", "what")),
		`organization "third" has no project "plan"`:                        second(of.Queries.OnlyProject(ctx, "third", "plan")),
		`project plan has no key "x": annals key list plan shows the ids`:   third(of.Key(ctx, "", "plan", "x")),
	} {
		f, is := errors.AsType[*fault.Error](err)
		if !is || f.Msg != want || f.Kind != fault.NotFound && f.Kind != fault.Conflict {
			t.Errorf("%v, want %s", err, want)
		}
	}
	l.late = fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "projection access is late; retry")
	if _, _, err := of.Key(ctx, "", "plan", "x"); !errors.Is(err, l.late) {
		t.Errorf("late: %v", err)
	}
}

func TestQuery_LiveKeys(t *testing.T) {
	w := &writer{}
	w.organization("org")
	w.project("org", "one", 1)
	w.key("one", "live")
	w.key("one", "revoked")
	w.key("one", "not asked for")
	w.revoke("one", "revoked")
	w.webhook("one", "hook")
	w.webhook("one", "rotated")
	w.rotateToken("one", "rotated", "new token")
	w.webhook("one", "deleted")
	w.deleteWebhook("one", "deleted")
	got, err := applied(t, w).LiveKeys(t.Context(), []uuid.UUID{
		id("live"), id("revoked"), id("unknown"), id("token of hook"), id("token of rotated"), id("new token"), id("token of deleted"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[uuid.UUID]struct{}{id("live"): {}, id("token of hook"): {}, id("new token"): {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("live keys (-want +got):\n%s", diff)
	}
}

func TestQuery_OrganizationsInPreparation(t *testing.T) {
	w := &writer{}
	w.organization("preparing")
	w.organization("prepared")
	w.Append(stream.Name(stream.Organization, id("prepared")), &organization.Prepared{OrganizationID: id("prepared"), PreparedAt: noon})
	got, err := applied(t, w).Preparing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uuid.UUID{id("preparing")}, got); diff != "" {
		t.Errorf("preparing (-want +got):\n%s", diff)
	}
}
