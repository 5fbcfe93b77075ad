package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/tenants"
)

// wants makes a call of the process and checks the status, and the code of a failure.
func (s *served) wants(key, method, path, body string, status int, code string) []byte {
	s.d.t.Helper()
	req, err := http.NewRequestWithContext(s.d.t.Context(), method, "http://"+s.addr+api+path, strings.NewReader(body))
	if err != nil {
		s.d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.d.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		s.d.t.Fatal(err)
	}
	if res.StatusCode != status || code != "" && !bytes.Contains(answer, []byte(`"code":"`+code+`"`)) {
		s.d.t.Errorf("%s %s: %d %s, want %d %s", method, path, res.StatusCode, answer, status, code)
	}
	return answer
}

// managesOrganizations checks that what one process changes is visible on the other from its next call on. If no server
// runs on the data folder, the commands work on the configured event store and database.
func (d *deployment) managesOrganizations() {
	t := d.t
	t.Helper()
	one, two := d.processes[0], d.processes[1]
	values, err := datafolder.ReadCredentials(one.dir)
	if err != nil {
		t.Fatal(err)
	}
	manager := values[datafolder.ManagementKeyName]
	for range 5 {
		var key struct{ ID, Key string }
		if err := json.Unmarshal(one.wants(manager, http.MethodPost, "/projects/default/keys", `{"name":"app"}`, http.StatusCreated, ""), &key); err != nil {
			t.Fatal(err)
		}
		two.wants(key.Key, http.MethodGet, "/usage", "", http.StatusOK, "")
		one.wants(manager, http.MethodDelete, "/projects/default/keys/"+key.ID, "", http.StatusNoContent, "")
		two.wants(key.Key, http.MethodGet, "/usage", "", http.StatusUnauthorized, "unauthorized")
	}
	project := values[datafolder.ProjectKeyName]
	for range 3 {
		one.operate("project", "archive", "default")
		two.wants(project, http.MethodGet, "/usage", "", http.StatusForbidden, "project-archived")
		two.operate("project", "unarchive", "default")
		one.wants(project, http.MethodGet, "/usage", "", http.StatusOK, "")
	}

	// No server runs on this folder, which is empty.
	plans := ""
	direct := func(out any, args ...string) outcome {
		t.Helper()
		env := map[string]string{
			"ANNALS_PLANS": plans, "ANNALS_EVENTSTORE": d.node, "ANNALS_POSTGRES": d.database, "ANNALS_DATA_DIR": t.TempDir(),
		}
		got := annals(t.Context(), env, "", append(args, "--json")...)
		if out != nil {
			if err := json.Unmarshal([]byte(got.stdout), out); got.code != exitOK || err != nil {
				t.Fatalf("%v: %+v, %v", args, got, err)
			}
		}
		return got
	}
	var acme, annal tenants.Organization
	direct(&acme, "org", "create", "Acme", "--plan", "payg")
	two.wants(acme.ManagementKey, http.MethodPost, "/projects", `{"name":"Default"}`, http.StatusCreated, "")
	one.wants(acme.ManagementKey, http.MethodGet, "/projects", "", http.StatusOK, "")
	if got := direct(nil, "org", "plan", "flex"); got.code != exitFailed ||
		!strings.Contains(got.stderr, "name one with --org") {
		t.Errorf("two organizations: %+v", got)
	}
	direct(&annal, "org", "plan", "payg", "--org", "annals")
	direct(&annal, "org", "credits", "--grant", "-1000000", "--org", "annals")
	if annal.Left != "0" || annal.Granted != "-150000" {
		t.Errorf("taken back: %+v", annal)
	}
	// The command uses the terms with which the servers were started.
	plans = `{"payg":{"allowanceTenths":70}}`
	direct(&annal, "org", "credits", "--grant", "1", "--org", "annals")
	if annal.Left != "8" || annal.Granted != "1" {
		t.Errorf("with an allowance: %+v", annal)
	}
	plans = `{"gold":{}}`
	if got := direct(nil, "org", "credits", "--grant", "1", "--org", "annals"); got.code != exitFailed || !strings.Contains(got.stderr, `ANNALS_PLANS names the plan "gold"`) {
		t.Errorf("terms of a plan that is not there: %+v", got)
	}
	plans = ""
	direct(&annal, "org", "credits", "--grant", "-1", "--org", "annals")
	for _, s := range d.processes {
		s.wants(project, http.MethodPost, "/ingest", `{"content":"Ana likes plums."}`, http.StatusPaymentRequired, "out-of-credits")
	}
	direct(&annal, "org", "plan", "self-hosted", "--org", "annals")
	for _, s := range d.processes {
		s.wants(project, http.MethodPost, "/ingest", `{"content":"Ana likes plums.","id":"`+s.addr+`"}`, http.StatusAccepted, "")
	}
	var rotated tenants.Organization
	direct(&rotated, "org", "rotate-management-key", "--org", "annals")
	for _, s := range d.processes {
		s.wants(manager, http.MethodGet, "/projects", "", http.StatusUnauthorized, "unauthorized")
		s.wants(rotated.ManagementKey, http.MethodGet, "/projects", "", http.StatusOK, "")
	}
}
