package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/internal/tenants"
)

var listedAt = time.Date(2026, 5, 12, 9, 30, 0, 0, time.UTC)

// serveTenancy serves what every operation returns, and the requests that it got.
func serveTenancy(t *testing.T) (flags TenancyFlags, asked *operatorapi.TenancyRequest) {
	t.Helper()
	asked = &operatorapi.TenancyRequest{}
	organization := tenants.ListedOrganization{
		Organization: tenants.Organization{ID: uuid.UUID{7}, Name: "Acme", Plan: "payg", CreatedAt: &listedAt}, Projects: 3,
	}
	project := tenants.ListedProject{
		Project: tenants.Project{ID: uuid.UUID{8}, Slug: "road-map", Name: "Road map", Organization: "Acme"}, CreatedAt: listedAt,
	}
	key := tenants.Key{ID: "k", Project: "road-map", Name: "app", Prefix: "svc_sk_ab", Suffix: "yz", CreatedAt: listedAt}
	revoked, clear := key, key
	revoked.RevokedAt, clear.Key = &listedAt, "svc_sk_abxyz"
	dir := t.TempDir()
	operatortest.Serve(t, dir,
		returnsTenancy(asked, operatorapi.ListOrganizations, []tenants.ListedOrganization{organization}),
		returnsTenancy(asked, operatorapi.ShowOrganization, organization),
		returnsTenancy(asked, operatorapi.ListProjects, []tenants.ListedProject{project}),
		returnsTenancy(asked, operatorapi.CreateProject, project), returnsTenancy(asked, operatorapi.ShowProject, project),
		returnsTenancy(asked, operatorapi.ListKeys, []tenants.Key{key, revoked}),
		returnsTenancy(asked, operatorapi.CreateKey, clear), returnsTenancy(asked, operatorapi.RevealKey, clear),
		returnsTenancy(asked, operatorapi.RevokeKey, revoked),
	)
	return TenancyFlags{DataDir: dir, Org: "acme"}, asked
}

func returnsTenancy[Out any](
	asked *operatorapi.TenancyRequest, o operatorapi.Operation[operatorapi.TenancyRequest, Out], out Out,
) operatorapi.Route {
	return o.ServeAs(time.Now, func(_ context.Context, call engine.Call, in operatorapi.TenancyRequest) (Out, error) {
		*asked = in
		asked.By = call.Principal.Name()
		return out, nil
	})
}

func TestTenancyCommands(t *testing.T) {
	flags, asked := serveTenancy(t)
	one := keyFlags{TenancyFlags: flags, Project: "road-map", ID: "k"}
	asJSON := flags
	asJSON.JSON = true
	for name, c := range map[string]struct {
		command interface {
			Run(context.Context, io.Writer) error
		}
		asked operatorapi.TenancyRequest
		want  string
	}{
		"org list":        {&OrgListCmd{flags}, operatorapi.TenancyRequest{}, `(?s)^NAME .*\nAcme +payg +3 +2026-05-12 +07000000-0000-0000-0000-000000000000\n$`},
		"org show":        {&OrgShowCmd{flags}, operatorapi.TenancyRequest{}, `(?s)^name: +Acme\n.*spend cap: +none\n.*being prepared`},
		"project list":    {&ProjectListCmd{flags}, operatorapi.TenancyRequest{}, `(?s)\nroad-map +Road map +Acme +in service +2026-05-12\n$`},
		"project create":  {&ProjectCreateCmd{flags, "Road map"}, operatorapi.TenancyRequest{Name: "Road map"}, `^project road-map of organization "Acme" is created; annals key create road-map --name NAME`},
		"project show":    {&ProjectShowCmd{flags, "road-map"}, operatorapi.TenancyRequest{Project: "road-map"}, `(?s)^slug: +road-map\n.*ingestion cap: +none\n`},
		"key list":        {&KeyListCmd{flags, "road-map"}, operatorapi.TenancyRequest{Project: "road-map"}, `(?s)\nk +app +svc_sk_ab…yz +2026-05-12 +live\nk .* revoked 2026-05-12\n$`},
		"key create":      {&KeyCreateCmd{flags, "road-map", "app"}, operatorapi.TenancyRequest{Project: "road-map", Name: "app"}, `is created: svc_sk_abxyz\n$`},
		"key reveal":      {&KeyRevealCmd{one}, operatorapi.TenancyRequest{Project: "road-map", Key: "k"}, `^svc_sk_abxyz\n$`},
		"key revoke":      {&KeyRevokeCmd{one}, operatorapi.TenancyRequest{Project: "road-map", Key: "k"}, `^key "app" \(k\) of project road-map is revoked\n$`},
		"key list --json": {&KeyListCmd{asJSON, "road-map"}, operatorapi.TenancyRequest{Project: "road-map"}, `(?s)^\[\n.*"keySuffix": "yz"`},
	} {
		var out bytes.Buffer
		if err := c.command.Run(t.Context(), &out); err != nil {
			t.Fatal(name, err)
		}
		if !regexp.MustCompile(c.want).MatchString(out.String()) {
			t.Errorf("%s: got %q, want %s", name, &out, c.want)
		}
		if !strings.HasPrefix(asked.By, "operator ") || asked.Organization != "acme" {
			t.Errorf("%s: asked by %q of %q", name, asked.By, asked.Organization)
		}
		if asked.Target = c.asked.Target; *asked != c.asked {
			t.Errorf("%s: asked %+v, want %+v", name, *asked, c.asked)
		}
		if strings.HasSuffix(name, "--json") && !json.Valid(out.Bytes()) {
			t.Errorf("%s: %s", name, &out)
		}
	}
}
