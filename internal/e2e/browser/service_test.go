package browser

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/e2e/servicetest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// binary is the built program.
var binary string

func TestMain(m *testing.M) { os.Exit(servicetest.Run(m, &binary, stopChromium)) }

// service is a running installation.
type service struct {
	*servicetest.Service

	t testing.TB
}

// start starts an installation with settings of its own, and stops it when the test ends.
func start(t testing.TB, env ...string) *service {
	t.Helper()
	return &service{servicetest.Start(t, binary, env...), t}
}

// client is a client of the API with a key of the credentials file.
func (s *service) client(name string) *client.Client {
	s.t.Helper()
	c, err := client.New(s.API, s.Credentials[name])
	runtest.Must(s.t, err)
	return c
}

// furnish fills the first project with what a small team has after a while, a webhook with events, and an archived
// project.
func (s *service) furnish() {
	s.t.Helper()
	webtest.Furnish(s.t, s.client("ANNALS_PROJECT_KEY"), s.client("ANNALS_MANAGEMENT_KEY"), "")
	s.Annals("project", "archive", "old-pilot")
	var hook struct{ URL string }
	runtest.Must(s.t, json.Unmarshal([]byte(s.Annals("webhook", "create", "--project", "default", "--name", "Issues",
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

// The names of what the first start writes for the Owner.
const (
	ownerEmail    = "ANNALS_OWNER_EMAIL"
	ownerPassword = "ANNALS_OWNER_PASSWORD"
)

// signIn signs in as the Owner that the first start made.
func (s *service) signIn(r *webtest.Reader) {
	s.t.Helper()
	r.Open("/")
	r.Submit("Sign in", map[string]string{"E-mail": s.Credentials[ownerEmail], "Password": s.Credentials[ownerPassword]})
	r.Answered(http.StatusOK)
}

// signInAs signs in by the form.
func (s *service) signInAs(p *person, email, password string) {
	s.t.Helper()
	p.open("/")
	p.fill("E-mail", email)
	p.fill("Password", password)
	p.click("button", "Sign in")
}
