package server

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
)

// names builds nothing: it returns the parts of a process with some roles.
func names(t *testing.T, roles Roles) []string {
	t.Helper()
	s := &Server{cfg: Config{Roles: roles, parts: []part{helloPart()}}}
	var list []string
	for _, p := range s.parts() {
		if !roles.HasAny(p.roles) {
			continue
		}
		for _, need := range p.needs {
			if !slices.Contains(list, need) {
				t.Errorf("of the roles %s, part %s has no part %s before it", roles, p.name, need)
			}
		}
		list = append(list, p.name)
	}
	return list
}

func TestParts_OfRoles(t *testing.T) {
	every := "storage log probes embeddings projections backpressure inventory health api start"
	for roles, more := range map[string]string{
		"write": "writes,visits,administration,read records,request log,signing keys,seal keys", "read": "index,recall,read records,request log,signing keys", "projector": "index",
		"pipeline":   "index,pipeline,audit",
		"console":    "index,writes,visits,recall,read records,request log,signing keys,hello,sign-in,seal keys,authorization server,pages,console",
		"read,write": "index,writes,visits,administration,recall,read records,request log,signing keys,seal keys",
		"": "index,writes,visits,pipeline,audit,administration,recall,read records,request log,signing keys,hello,sign-in,seal keys,authorization server," +
			"pages,console",
	} {
		parsed, err := ParseRoles(roles)
		runtest.Must(t, err)
		want := append(strings.Fields(every), strings.Split(more, ",")...)
		got := names(t, parsed)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q has %v, want %v", roles, got, want)
		}
	}
	if got, want := names(t, nil), names(t, AllRoles()); !slices.Equal(got, want) {
		t.Errorf("without roles a process has %v, with all %v", got, want)
	}
}

// Any two roles leave no part without what it needs.
func TestParts_OfTwoRoles(t *testing.T) {
	for _, one := range AllRoles() {
		for _, other := range AllRoles() {
			names(t, Roles{one, other})
		}
	}
}

func TestBuild_StopsWhatItBuilt(t *testing.T) {
	var stopped []string
	is := func(name string, err error) part {
		return part{name: name, build: func(context.Context, *Server) (adds, error) {
			return adds{stop: func() error { stopped = append(stopped, name); return nil }}, err
		}}
	}
	broken := errors.New("broken")
	s := &Server{registry: prometheus.NewRegistry()}
	if err := s.build(t.Context(), []part{is("a", nil), is("b", nil), is("c", broken)}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if err := s.Close(); err != nil || strings.Join(stopped, "") != "ba" {
		t.Errorf("stopped %v, %v: want b, then a", stopped, err)
	}
	if err := s.build(t.Context(), []part{{name: "d", needs: []string{"e"}}}); err == nil {
		t.Error("a part is built without what it needs")
	}
}

// The part of docs/parts.md is served. A fault becomes a page, what no page serves does not.
func TestParts_Example(t *testing.T) {
	t.Parallel()
	failing := part{name: "failing", build: func(context.Context, *Server) (adds, error) {
		return adds{pages: map[string]httpx.Page{"/failing/": func(http.ResponseWriter, *http.Request) error {
			return fault.New(fault.Conflict, fault.CodeInternal, "it fails")
		}}}, nil
	}}
	h := newHarness(t)
	h.set = func(cfg *Config) { cfg.parts = []part{helloPart(), failing} }
	h.start()
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/hello":         {200, "<p>Hello. Identities to remove: 0."},
		"/failing/a/b":   {409, "<p>it fails"},
		"/hello/more":    {404, "<h1>There is no such page</h1>"},
		"/api/v1/recall": {404, `"code":"not-found"`},
	} {
		got := h.fetch(http.MethodGet, h.urls.Console+path, "", "")
		if got.want(t, want.status, want.body); got.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: an answer without an id", path)
		}
	}
}

func TestParts_PageShowsTheExample(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/parts.md")
	runtest.Must(t, err)
	source, err := os.ReadFile("example_part_test.go")
	runtest.Must(t, err)
	if !strings.Contains(string(page), "\n```go\n"+string(source)+"```\n") {
		t.Error("docs/parts.md does not show example_part_test.go as it is")
	}
	if n := strings.Count(string(source), "\n"); n > 40 {
		t.Errorf("the example has %d lines, want 40 at most", n)
	}
	for _, p := range (&Server{}).parts() {
		if !strings.Contains(string(page), "\n| "+p.name+" |") {
			t.Errorf("docs/parts.md does not list part %s", p.name)
		}
	}
}
