package server

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/runtest"
)

// checkAuditor opens every page as an auditor: what shows no text, and what shows texts only if the organization allows
// it. want is what the others are answered, by the pattern of the route. An auditor changes nothing.
func (h *consoleHarness) checkAuditor(values map[string]string, want func(web.Route) [7]int) {
	h.t.Helper()
	const member, admin = 2, 5 // of roles
	service, call := h.people()
	r := h.as("auditor")
	for _, texts := range []bool{false, true} {
		runtest.Must(h.t, service.SetAuditorTexts(h.t.Context(), call, h.home(), texts))
		audited, read := 0, 0
		for _, route := range h.site.Routes() {
			method, path := h.address(route.Pattern, values)
			opens := route.Auditors == web.Audited || route.Auditors == web.AuditedTexts && texts
			of := want(route)
			status := http.StatusForbidden
			switch {
			case route.Needs <= web.SignedIn:
				status = of[member]
			case opens:
				status = of[admin]
				audited++
			}
			if method != http.MethodGet {
				if route.Needs > web.SignedIn && !opens {
					if got := r.Ask(method, path, url.Values{"name": {"x"}}); got.Status != status {
						h.t.Errorf("an auditor sends %s: %d, want %d", path, got.Status, status)
					}
				}
				continue
			}
			got := r.Ask(method, path, nil)
			if got.Status != status {
				h.t.Errorf("an auditor opens %s, with texts %t: %d, want %d: %.300s", path, texts, got.Status, status, got.Body)
			}
			if strings.Contains(got.Body, "asked for an offer") {
				read++
			}
			if opens && strings.HasPrefix(path, "/p/") && !texts {
				json, csv := r.Ask(method, path+"?format=json", nil), r.Ask(method, path+"?format=csv", nil)
				h.checkNoText(path, got.Body, json.Body, csv.Body)
			}
		}
		if audited < 15 || texts != (read > 0) {
			h.t.Errorf("with texts %t an auditor opens %d pages, %d of them with texts", texts, audited, read)
		}
	}
	for _, path := range []string{"/p/default/data?label=x", "/p/default/identities?trait=note&value=x"} {
		runtest.Must(h.t, service.SetAuditorTexts(h.t.Context(), call, h.home(), false))
		if got := r.Ask(http.MethodGet, path, nil); got.Status != http.StatusForbidden {
			h.t.Errorf("an auditor without texts filters by %s: %d", path, got.Status)
		}
	}
}

// customerTexts are parts of what customers wrote in the first project: contents, labels, metadata, values of traits,
// questions.
var customerTexts = []string{
	"asked for an offer", "Planning call", "Ticket 8820", "phone", "Lyon", "sales", "When is the launch",
	"The lift is broken",
}

// checkNoText checks that the answers of a page have no text.
func (h *consoleHarness) checkNoText(path string, answers ...string) {
	h.t.Helper()
	for _, answer := range answers {
		for _, text := range customerTexts {
			if strings.Contains(answer, text) {
				h.t.Errorf("an auditor reads %q on %s", text, path)
			}
		}
	}
}
