package access_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
)

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
