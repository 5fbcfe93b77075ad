package apitest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/secret"
)

// The keys that Keys knows, and one of each kind that it does not.
const (
	ProjectKey        = "svc_sk_0000000000000000000000000000000000000001"
	ArchivedKey       = "svc_sk_0000000000000000000000000000000000000002"
	UnknownKey        = "svc_sk_0000000000000000000000000000000000000003"
	UnreachableKey    = "svc_sk_0000000000000000000000000000000000000004"
	PreparingKey      = "svc_sk_0000000000000000000000000000000000000005"
	ManagementKey     = "svc_mk_0000000000000000000000000000000000000001"
	UnknownManagement = "svc_mk_0000000000000000000000000000000000000003"
	AgentToken        = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbmEifQ.c2lnbmF0dXJl"
)

// URLs are the public addresses that tests give the API.
var URLs = auth.URLs{
	API:     "https://api.example.com",
	Console: "https://console.example.com",
	Auth:    "https://auth.example.com",
}

// EdgeConfig is what tests give the HTTP edge: the keys and addresses above, and no log.
func EdgeConfig() httpx.Config {
	return httpx.Config{Log: slog.New(slog.DiscardHandler), Keys: Keys{}, URLs: URLs}
}

// Principal is the owner of ProjectKey.
var Principal = auth.Principal{
	Kind: auth.ProjectKey, KeyID: uuid.MustParse("11111111-1111-4111-8111-111111111111"), KeyName: "first",
	OrganizationID: uuid.MustParse("22222222-2222-4222-8222-222222222222"),
	Project: auth.Project{
		ID: uuid.MustParse("33333333-3333-4333-8333-333333333333"), Number: 1, Slug: "default",
		Namespace: uuid.MustParse("44444444-4444-4444-8444-444444444444"),
	},
}

// Manager is the owner of ManagementKey.
var Manager = auth.Principal{
	Kind:           auth.ManagementKey,
	KeyID:          uuid.MustParse("55555555-5555-4555-8555-555555555555"),
	OrganizationID: Principal.OrganizationID,
}

// Keys is an auth.Keys of the keys above.
type Keys struct{}

// KeyByHash implements auth.Keys.
func (Keys) KeyByHash(_ context.Context, kind auth.Kind, hash [32]byte) (h auth.Holder, ok bool, err error) {
	switch {
	case hash == secret.Hash(ProjectKey) && kind == auth.ProjectKey:
		return auth.Holder{Principal: Principal}, true, nil
	case hash == secret.Hash(ArchivedKey) && kind == auth.ProjectKey:
		return auth.Holder{Principal: Principal, Archived: true}, true, nil
	case hash == secret.Hash(PreparingKey) && kind == auth.ProjectKey:
		return auth.Holder{Principal: Principal, Archived: true, Preparing: true}, true, nil
	case hash == secret.Hash(ManagementKey) && kind == auth.ManagementKey:
		return auth.Holder{Principal: Manager}, true, nil
	case hash == secret.Hash(UnreachableKey):
		return auth.Holder{}, false, errors.New("the database does not answer")
	}
	return auth.Holder{}, false, nil
}

// Agent implements auth.Keys.
func (Keys) Agent(context.Context, uuid.UUID) (auth.AgentHolder, bool, error) {
	return auth.AgentHolder{}, false, nil
}

// ArchivedSlug names an archived project of the organization, UnreachableSlug one that cannot be
// looked up.
const (
	ArchivedSlug    = "archived"
	UnreachableSlug = "unreachable"
)

// ProjectNamed implements auth.Keys: the organization has the project of ProjectKey, and an
// archived one.
func (Keys) ProjectNamed(_ context.Context, organizationID uuid.UUID, slug string) (auth.Named, bool, error) {
	switch {
	case slug == UnreachableSlug:
		return auth.Named{}, false, errors.New("the database does not answer")
	case organizationID != Principal.OrganizationID:
		return auth.Named{}, false, nil
	case slug == Principal.Project.Slug:
		return auth.Named{
			Project:         Principal.Project,
			IngestionCap:    Principal.Limits.IngestionCap,
			CreditCapTenths: Principal.Limits.CreditCapTenths,
		}, true, nil
	case slug == ArchivedSlug:
		return auth.Named{
			Project:  auth.Project{ID: uuid.MustParse("66666666-6666-4666-8666-666666666666"), Number: 2, Slug: ArchivedSlug},
			Archived: true,
		}, true, nil
	}
	return auth.Named{}, false, nil
}

// Client calls an API over HTTP; every response is held against the contract.
type Client struct {
	t    testing.TB
	url  string
	http *http.Client
}

// Response is what a call answered.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Start serves a handler until the test ends, and returns a client of it.
func Start(t testing.TB, document []byte, handler http.Handler) *Client {
	t.Helper()
	return start(t, Load(t, document), handler)
}

// StartEdge is Start for the routes of a test: it holds responses only against what is true of
// every route.
func StartEdge(t testing.TB, document []byte, handler http.Handler) *Client {
	t.Helper()
	contract := Load(t, document)
	contract.edgeOnly = true
	return start(t, contract, handler)
}

func start(t testing.TB, contract *Contract, handler http.Handler) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &Client{t: t, url: server.URL, http: &http.Client{
		Transport:     contract.Transport(t, transport),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Call sends a request and reads its response. The path is sent as it is; key "" sends no key.
// A body that is not empty is sent as application/json, unless a header ("Name: value") sets another
// type; "Name:" alone omits a header.
func (c *Client) Call(method, path, key, body string, headers ...string) Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		if value = strings.TrimSpace(value); value == "" {
			req.Header.Del(name)
			continue
		}
		req.Header.Set(name, value)
	}
	return c.Do(req)
}

// Do sends a request and reads its response.
func (c *Client) Do(req *http.Request) Response {
	c.t.Helper()
	res, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var body bytes.Buffer
	if _, err := io.Copy(&body, res.Body); err != nil {
		c.t.Fatal(err)
	}
	return Response{Status: res.StatusCode, Header: res.Header, Body: body.String()}
}

// URL is the address of the server.
func (c *Client) URL() string { return c.url }

// Want fails the test unless the response has the status and its body holds each fragment.
func (r Response) Want(t testing.TB, status int, fragments ...string) {
	t.Helper()
	if r.Status != status {
		t.Errorf("status %d, want %d\n%.500s", r.Status, status, r.Body)
	}
	for _, f := range fragments {
		if !strings.Contains(r.Body, f) {
			t.Errorf("the body lacks %s\n%.500s", f, r.Body)
		}
	}
}
