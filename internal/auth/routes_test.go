package auth_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
)

// The specification's own words on who may call what, by credential.
const (
	projectKeyOnly = `
DELETE /data-points/:sourceId
POST /data-points/delete
GET /audiences
PUT /audiences/:slug
GET /audiences/:slug
DELETE /audiences/:slug
POST /audiences/:slug/recompute`
	managementKeyOnly = `
GET /projects
POST /projects
POST /projects/:slug/keys
DELETE /projects/:slug/keys/:keyId
GET /audit/:organization/checkpoint
GET /audit/:organization/policy
GET /audit/:organization/tile/:level/*
GET /audit/:organization/proofs`
	memoryRead = `
POST /recall
GET /ingest/:ingestionId
POST /ingest/estimate
GET /ingest/:ingestionId/explain
GET /requests
GET /requests/histogram
GET /requests/:requestId
GET /trace/roots
GET /trace/nodes/:id
GET /trace/lineage/:rootId
GET /trace/timeline/:rootId`
	memoryWrite = `
POST /ingest
POST /ingest/batch
POST /ingest/:ingestionId/retry
DELETE /ingest/:ingestionId`
	readWithEitherKey = `
GET /identities
GET /identities/:identity
GET /usage`
	writeWithEitherKey = `
PUT /identities/:identity
PATCH /identities/:identity
DELETE /identities/:identity
POST /identities/bulk`
)

func TestRoutes_MatchSpecification(t *testing.T) {
	want := map[string]string{"POST /webhooks/:webhookId/:token": "open"}
	for credentials, routes := range map[string]string{
		"project":                         projectKeyOnly,
		"management":                      managementKeyOnly,
		"project memory:read":             memoryRead,
		"project memory:write":            memoryWrite,
		"project management memory:read":  readWithEitherKey,
		"project management memory:write": writeWithEitherKey,
	} {
		for route := range strings.SplitSeq(strings.TrimSpace(routes), "\n") {
			want[route] = credentials
		}
	}
	got := map[string]string{}
	for _, r := range auth.Routes() {
		var takes []string
		for kind, name := range map[auth.Kind]string{auth.ProjectKey: "project", auth.ManagementKey: "management"} {
			if r.Takes(kind) {
				takes = append(takes, name)
			}
		}
		if len(takes) == 2 {
			takes = []string{"project", "management"}
		}
		if r.Takes(auth.AgentToken) {
			takes = append(takes, string(r.Agent))
		}
		if r.Open {
			takes = append(takes, "open")
		}
		name := r.Method + " " + strings.TrimPrefix(r.Path, auth.Prefix)
		if _, twice := got[name]; twice {
			t.Errorf("%s is listed twice", name)
		}
		got[name] = strings.Join(takes, " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPrincipal_Name(t *testing.T) {
	id := uuid.MustParse("00000000-0000-4000-8000-0000000000aa")
	for want, p := range map[string]auth.Principal{
		"key:" + id.String():            {Kind: auth.ProjectKey, KeyID: id, KeyName: "name"},
		"management-key:" + id.String(): {Kind: auth.ManagementKey, KeyID: id},
		"webhook:whk_1":                 {Kind: auth.WebhookToken, KeyID: id, Webhook: &auth.Webhook{ID: "whk_1"}},
		"person:" + id.String():         {Kind: auth.Person, KeyID: id, KeyName: auth.ConsoleName},
	} {
		if got := p.Name(); got != want {
			t.Errorf("%s is named %q, want %q", p.Kind, got, want)
		}
	}
}

func TestAuthenticate_FormOfAgentTokens(t *testing.T) {
	for value, want := range map[string]bool{
		"a.b.c": true, "eyJ-_9.A.0": true, "a.b": false, "a.b.": false, ".b.c": false, "a..c": false, "a.b.c.d": false, "a.b.c=": false, "a.b.ç": false, "": false,
	} {
		if got := auth.IsAgentToken(value); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

// unasked fails the test when a key is looked up.
type unasked struct{ t *testing.T }

func (u unasked) KeyByHash(context.Context, auth.Kind, [32]byte) (h auth.Holder, ok bool, err error) {
	u.t.Error("a key was looked up that the route does not take")
	return h, false, nil
}

func (u unasked) ProjectNamed(context.Context, uuid.UUID, string) (n auth.Named, ok bool, err error) {
	u.t.Error("a project was looked up")
	return n, false, nil
}

func (u unasked) Agent(context.Context, uuid.UUID) (h auth.AgentHolder, ok bool, err error) {
	u.t.Error("an agent was looked up")
	return h, false, nil
}

func TestAuthenticate_KeyKindNotAccepted(t *testing.T) {
	a, routes := auth.NewAuthenticator(unasked{t}), auth.NewTable()
	for _, c := range []struct{ method, path, value string }{
		{http.MethodPost, "/recall", "svc_mk_1"},
		{http.MethodGet, "/projects", "svc_sk_1"},
		{http.MethodGet, "/audiences", "a.b.c"},
		{http.MethodPost, "/recall", "a.b.c"},
		{http.MethodPost, "/webhooks/:webhookId/:token", "svc_sk_1"},
	} {
		route := routes.Find(c.method, auth.Prefix+c.path)
		_, err := a.Authenticate(t.Context(), route, http.Header{"Authorization": {"Bearer " + c.value}})
		if open := strings.HasPrefix(c.path, "/webhooks"); (err == nil) != open {
			t.Errorf("%s with %s: %v", c.path, c.value, err)
		}
	}
}
