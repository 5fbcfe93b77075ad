package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/webtest"
)

// Everybody sees the own projects and whether the service works, operators also what it consists of and the causes.
func TestConsole_Health(t *testing.T) {
	t.Parallel()
	h := seeConsole(t)
	for role, want := range map[string]struct{ has, hasNot []string }{
		"owner":   {[]string{"default", "old-pilot", "This deployment", "Request log", "Open work", "annals rebuild"}, []string{"theirs"}},
		"admin":   {[]string{"default", "old-pilot", "datapoints", "settled"}, []string{"This deployment", "theirs"}},
		"read":    {[]string{"default", "settled"}, []string{"old-pilot", "This deployment"}},
		"member":  {[]string{"There is no project that you may read"}, []string{"default", "This deployment"}},
		"foreign": {[]string{"theirs"}, []string{"default", "This deployment"}},
	} {
		r := h.as(role)
		r.Open("/health")
		r.Answered(http.StatusOK)
		r.SeeLater("ready")
		for _, text := range want.has {
			r.SeeLater(text)
		}
		main := r.At.Find("main").Text()
		for _, text := range want.hasNot {
			if strings.Contains(main, text) {
				t.Errorf("%s sees %q: %s", role, text, webtest.Plain(main))
			}
		}
	}
	var got struct {
		IsReady     bool                   `json:"isReady"`
		Projections []condition.Projection `json:"projections"`
		Operator    *condition.Details     `json:"operator"`
	}
	answer := h.as("owner").Ask(http.MethodGet, "/health?format=json", nil)
	if err := json.Unmarshal([]byte(answer.Body), &got); err != nil || !got.IsReady || len(got.Projections) < 7 ||
		got.Operator == nil || got.Operator.Open == nil || got.Operator.RequestLogBytes == nil {
		t.Errorf("%v %s", err, answer.Body)
	}
	if answer := h.as("admin").Ask(http.MethodGet, "/health?format=json", nil); strings.Contains(answer.Body, "operator") {
		t.Errorf("an Admin reads %s", answer.Body)
	}
}

// A projection that stops is shown to everybody with the constant reason, and to operators with the cause.
func TestConsole_HealthOfAStoppedProjection(t *testing.T) {
	t.Parallel()
	h := startStaff(t)
	if _, err := h.storage.db.Exec(t.Context(), `alter table directory.identities rename to hidden`); err != nil {
		t.Fatal(err)
	}
	key, _ := h.keys()
	h.call(key, http.MethodPut, api+"/identities/zoe", point{"traits": point{"team": "x"}})
	owner, read := h.as("owner"), h.as("read")
	owner.Open("/health")
	owner.SeeLater("not ready")
	owner.SeeLater("projection directory: ")
	owner.SeeLater("42P01")
	read.Open("/health")
	read.SeeLater("projection directory: ")
	if strings.Contains(read.At.Text(), "42P01") {
		t.Errorf("a member reads the cause: %s", read.At.Text())
	}
}

func TestConsole_Organizations(t *testing.T) {
	t.Parallel()
	h := seeConsole(t)
	owner := h.as("owner")
	for path, want := range map[string]struct{ has, hasNot string }{
		"/operator/organizations":                     {"foreign@other.example", "No organization"},
		"/operator/organizations?q=OTHER":             {"foreign@other.example", ">Annals</td>"},
		"/operator/organizations?q=zzz":               {"No organization has that", "foreign@"},
		"/operator/organizations?format=csv":          {",Other,flex,foreign@other.example,1,", "<"},
		"/operator/organizations?format=json&q=other": {`"ownerEmail": "foreign@other.example"`, "<"},
	} {
		got := owner.Ask(http.MethodGet, path, nil)
		if got.Status != http.StatusOK || !strings.Contains(got.Body, want.has) || strings.Contains(got.Body, want.hasNot) {
			t.Errorf("%s: %d %s", path, got.Status, got.Body)
		}
	}
}
