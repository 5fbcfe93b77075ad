package browser

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// furnish fills the first project with what a small team has after a while, a webhook with events, and an archived
// project.
func (s *service) furnish() {
	s.t.Helper()
	webtest.Furnish(s.t, s.client("ANNALS_PROJECT_KEY"), s.client("ANNALS_MANAGEMENT_KEY"), "")
	s.annals("project", "archive", "old-pilot")
	var hook struct{ URL string }
	runtest.Must(s.t, json.Unmarshal([]byte(s.annals("webhook", "create", "--project", "default", "--name", "Issues",
		"--content-path", "$.issue.body", "--id-path", "$.issue.node_id", "--filter", "$.action is-any-of opened edited", "--json")), &hook))
	for _, event := range []string{
		`{"action":"opened","issue":{"node_id":"I_1","body":"The export button does nothing in Firefox."}}`,
		`{"action":"closed","issue":{"node_id":"I_1","body":"The export button does nothing in Firefox."}}`,
		`{"action":"opened","issue":{"node_id":"I_2"}}`,
	} {
		s.event(hook.URL, event)
	}
}

// event sends an event to a webhook.
func (s *service) event(url, body string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, url, strings.NewReader(body))
	runtest.Must(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	runtest.Must(s.t, err)
	_ = res.Body.Close()
	if res.StatusCode/100 != 2 {
		s.t.Fatalf("an event was answered %d", res.StatusCode)
	}
}
