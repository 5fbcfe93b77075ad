package httpx_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
)

func TestProject_NamedInTheQuery(t *testing.T) {
	const mismatch, required, missing = `"code":"project-mismatch"`, `"code":"project-required"`, `"code":"not-found"`
	api, _ := start(t, httpx.Config{}, nil)
	for _, r := range auth.Routes() {
		if r.Open {
			continue
		}
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			call := func(key, query string) apitest.Response { return api.Call(r.Method, pathOf(r.Path)+query, key, "") }
			if r.Takes(auth.ProjectKey) {
				// Nothing is built here: 404 is the answer after the check.
				for _, query := range []string{"", "?project=", "?project=default", "?project=default&project=default"} {
					call(apitest.ProjectKey, query).Want(t, 404, "nothing is served")
				}
				for _, query := range []string{"?project=other", "?project=Default", "?project=default%20", "?project=default&project=other", "?project=%00"} {
					call(apitest.ProjectKey, query).Want(t, 400, mismatch)
				}
				call(apitest.ArchivedKey, "?project=other").Want(t, 403, `"code":"project-archived"`)
			}
			if !r.Takes(auth.ManagementKey) {
				return
			}
			if !r.ProjectQuery {
				for _, query := range []string{"", "?project=default", "?project=other"} {
					call(apitest.ManagementKey, query).Want(t, 404, "nothing is served")
				}
				return
			}
			for _, query := range []string{"", "?project=", "?project"} {
				call(apitest.ManagementKey, query).Want(t, 400, required)
			}
			for _, query := range []string{"?project=other", "?project=Default", "?project=%00", "?project=%FF", "?project=" + url.QueryEscape("a/b")} {
				call(apitest.ManagementKey, query).Want(t, 404, missing, "no project of this slug")
			}
			call(apitest.ManagementKey, "?project=default&project=other").Want(t, 400, `"code":"invalid-request"`)
			call(apitest.ManagementKey, "?project="+apitest.ArchivedSlug).Want(t, 403, `"code":"project-archived"`)
			call(apitest.ManagementKey, "?project="+apitest.UnreachableSlug).Want(t, 503, `"code":"service-unavailable"`)
			call(apitest.ManagementKey, "?project=default").Want(t, 404, "nothing is served")
			call(apitest.UnknownManagement, "?project=other").Want(t, 401, `"code":"unauthorized"`)
		})
	}
}

func TestProject_NamedByAManagementKey(t *testing.T) {
	var got auth.Principal
	api, _ := start(t, httpx.Config{}, at(http.MethodGet, "/identities", func(c echo.Context) error {
		got = httpx.Principal(c)
		return c.NoContent(http.StatusNoContent)
	}))
	api.Call(http.MethodGet, "/api/v1/identities?project=default", apitest.ManagementKey, "").Want(t, 204)
	want := apitest.Manager
	want.Project = apitest.Principal.Project
	if got != want {
		t.Errorf("principal %+v, want %+v", got, want)
	}
}

func TestProject_UnknownRouteComesFirst(t *testing.T) {
	api, _ := start(t, httpx.Config{}, nil)
	api.Call(http.MethodGet, "/api/v1/nothing?project=other", apitest.ProjectKey, "").Want(t, 404, `"code":"not-found"`)
	api.Call(http.MethodGet, "/api/v1/identities/a/b?project=other", apitest.ProjectKey, "").
		Want(t, 404, `"code":"not-found"`)
	api.Call(http.MethodPut, "/api/v1/identities?project=other", apitest.ProjectKey, "").
		Want(t, 405, `"code":"method-not-allowed"`)
}
