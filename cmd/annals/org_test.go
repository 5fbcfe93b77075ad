package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/internal/amounts"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tenants"
)

// asIfBySomebody compares requests as if somebody had made them, whichever user of this system did.
var asIfBySomebody = cmp.FilterPath(
	func(p cmp.Path) bool { return p.Last().String() == ".By" }, cmp.Transformer("somebody", known))

// known is "somebody" for every user of this system.
func known(by string) string {
	if user, ok := strings.CutPrefix(by, "operator "); ok && user != "" {
		return "somebody"
	}
	return by
}

// serveOrganizations serves them for a data folder, which it returns.
func serveOrganizations(t *testing.T, o *operatortest.Organizations) string {
	t.Helper()
	dir := t.TempDir()
	operatortest.Serve(t, dir, o.Routes()...)
	return dir
}

// operatorCommand is a command line, what it asks of the service, and what it prints.
type operatorCommand struct {
	args         string
	organization tenants.Organization
	project      tenants.Project
	asked        any
	says         string
}

func TestOperatorCommands_OrganizationsAndProjects(t *testing.T) {
	for _, tt := range append(organizationCommands(), projectCommands()...) {
		t.Run(tt.args, func(t *testing.T) { tt.run(t) })
	}
}

func organizationCommands() []operatorCommand {
	number := func(n int64) *int64 { return &n }
	decimal := func(n json.Number) *json.Number { return &n }
	only, acme := operatorapi.Target{By: "somebody"}, operatorapi.Target{Organization: "acme", By: "somebody"}
	return []operatorCommand{
		{
			"org create Acme --plan payg --owner-email a@b.c",
			tenants.Organization{ID: uuid.UUID{7}, Name: "Acme", Plan: "payg", Granted: "150000", ManagementKey: "svc_mk_x"},
			tenants.Project{},
			operatorapi.NewOrganization{
				NewOrganization: tenancy.NewOrganization{Name: "Acme", Plan: "payg", OwnerEmail: "a@b.c"}, By: "somebody",
			},
			"organization \"Acme\" (07000000-0000-0000-0000-000000000000) is created, on plan payg\nstarting credits: 150000\nmanagement key, shown only now: svc_mk_x\n",
		},
		{
			"org create Acme",
			tenants.Organization{ID: uuid.UUID{7}, Name: "Acme", Plan: "self-hosted", ManagementKey: "svc_mk_x", Warning: "late"},
			tenants.Project{},
			operatorapi.NewOrganization{
				NewOrganization: tenancy.NewOrganization{Name: "Acme", Plan: "self-hosted"}, By: "somebody",
			},
			"organization \"Acme\" (07000000-0000-0000-0000-000000000000) is created, on plan self-hosted\nmanagement key, shown only now: svc_mk_x\nwarning: late\n",
		},
		{
			"org plan flex --org acme",
			tenants.Organization{Name: "Acme", Plan: "flex", Granted: "400000"},
			tenants.Project{},
			operatorapi.PlanRequest{Target: acme, Plan: "flex"},
			"organization \"Acme\" is on plan flex\nstarting credits: 400000\n",
		},
		{
			"org credits --grant 100.5",
			tenants.Organization{Name: "Acme", Granted: "100.5", Left: "101"},
			tenants.Project{},
			operatorapi.CreditsRequest{Target: only, Tenths: 1005},
			"100.5 credits were granted to organization \"Acme\", which has 101 left\n",
		},
		{
			"org credits --grant -3 --org acme",
			tenants.Organization{Name: "Acme", Granted: "-2", Left: "0"},
			tenants.Project{},
			operatorapi.CreditsRequest{Target: acme, Tenths: -30},
			"2 credits were taken back from organization \"Acme\", which has 0 left\n",
		},
		{
			"org credits --grant=-0.5",
			tenants.Organization{Name: "Acme", Granted: "0", Left: "0"},
			tenants.Project{},
			operatorapi.CreditsRequest{Target: only, Tenths: -5},
			"0 credits were granted to organization \"Acme\", which has 0 left\n",
		},
		{
			"org spend-cap 0",
			tenants.Organization{Name: "Acme", SpendCap: decimal("0")},
			tenants.Project{},
			operatorapi.SpendCapRequest{Target: only, Tenths: number(0)},
			"organization \"Acme\" is charged at most 0 credits a month\n",
		},
		{
			"org spend-cap none --org acme",
			tenants.Organization{Name: "Acme"},
			tenants.Project{},
			operatorapi.SpendCapRequest{Target: acme},
			"organization \"Acme\" has no spend cap\n",
		},
		{
			"org rotate-management-key",
			tenants.Organization{Name: "Acme", ManagementKey: "svc_mk_y", CredentialsFile: "data/credentials.env"},
			tenants.Project{},
			only,
			"management key of organization \"Acme\", shown only now: svc_mk_y\ndata/credentials.env has it too\n",
		},
	}
}

func projectCommands() []operatorCommand {
	number := func(n int64) *int64 { return &n }
	decimal := func(n json.Number) *json.Number { return &n }
	only, acme := operatorapi.Target{By: "somebody"}, operatorapi.Target{Organization: "acme", By: "somebody"}
	return []operatorCommand{
		{
			"project archive one --org acme",
			tenants.Organization{},
			tenants.Project{Slug: "one", IsArchived: true},
			operatorapi.ArchiveRequest{Target: acme, Slug: "one", Archived: true},
			"project one is archived\n",
		},
		{
			"project unarchive one",
			tenants.Organization{},
			tenants.Project{Slug: "one"},
			operatorapi.ArchiveRequest{Target: only, Slug: "one"},
			"project one is in service\n",
		},
		{
			"project caps one --ingestion-cap 500 --credit-cap 0.1",
			tenants.Organization{},
			tenants.Project{Slug: "one", IngestionCap: number(500), CreditCap: decimal("0.1")},
			operatorapi.CapsRequest{
				Target: only, Slug: "one",
				Caps: tenancy.Caps{SetIngestion: true, Ingestion: number(500), SetCredit: true, CreditTenths: number(1)},
			},
			"project one: ingestion cap 500, credit cap 0.1\n",
		},
		{
			"project caps one --credit-cap none --org acme",
			tenants.Organization{},
			tenants.Project{Slug: "one", IngestionCap: number(0)},
			operatorapi.CapsRequest{Target: acme, Slug: "one", Caps: tenancy.Caps{SetCredit: true}},
			"project one: ingestion cap 0, credit cap none\n",
		},
	}
}

func (tt operatorCommand) run(t *testing.T) {
	t.Helper()
	service := &operatortest.Organizations{Organization: tt.organization, Project: tt.project}
	args := append(strings.Fields(tt.args), "--data-dir", serveOrganizations(t, service))
	annals(t.Context(), nil, "", args...).prints(t, tt.says)
	if diff := cmp.Diff(tt.asked, service.Asked, asIfBySomebody); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	got := annals(t.Context(), nil, "", append(args, "--json")...)
	got.wants(t, exitOK)
	var want, read any = &tt.project, &tenants.Project{}
	if strings.HasPrefix(tt.args, "org") {
		want, read = &tt.organization, &tenants.Organization{}
	}
	runtest.Must(t, json.Unmarshal([]byte(got.stdout), read))
	if diff := cmp.Diff(want, read); diff != "" {
		t.Errorf("as JSON (-want +got):\n%s", diff)
	}
	service.Refuse = operatorapi.Refuse("no such thing")
	if got := annals(t.Context(), nil, "", args...); got.code != exitFailed || got.stdout != "" ||
		got.stderr != "annals: no such thing\n" {
		t.Errorf("refused: %+v", got)
	}
}

func TestCredits_Numbers(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 10, "0.5": 5, "-0.5": -5, "+3": 30, "-20": -200, "922337203685477580.7": 9223372036854775807,
	} {
		if got, err := amounts.Credits(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "-", ".5", "-.5", "1.", "1.25", "1.-5", "1.x", "x", "1e3", "none", "922337203685477580.8", "1,5",
	} {
		if got, err := amounts.Credits(text); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

func TestOperatorCommands_Invalid(t *testing.T) {
	dir := serveOrganizations(t, &operatortest.Organizations{})
	for args, says := range map[string]string{
		"org credits --grant 1.25":             "is not a number of credits",
		"org spend-cap x":                      "is not a number of credits",
		"project caps one --ingestion-cap 1.5": "is not a cap",
		"project caps one --ingestion-cap=-1":  "is not a cap",
		"project caps one --credit-cap=-0.1":   "is not a cap",
	} {
		annals(t.Context(), nil, "", append(strings.Fields(args), "--data-dir", dir)...).wants(t, exitFailed, says)
	}
	for _, args := range []string{
		"org credits", "org create", "org plan", "org spend-cap", "project archive", "project caps", "org credits --grant",
	} {
		annals(t.Context(), nil, "", append(strings.Fields(args), "--data-dir", dir)...).wants(t, exitUsage)
	}
	for _, args := range []string{
		"org create A1", "org plan flex", "org credits --grant -1", "org spend-cap none", "org rotate-management-key",
		"project archive a", "project caps a",
	} {
		annals(t.Context(), nil, "", append(strings.Fields(args), "--data-dir", t.TempDir())...).
			fails(t, exitFailed, "no server is running on data folder")
	}
}

// wants makes a call of the process and checks the status, and the code of a failure.
func (s *served) wants(key, method, path, body string, status int, code string) []byte {
	s.d.t.Helper()
	got, _, answer, err := s.call(key, method, path, body)
	runtest.Must(s.d.t, err)
	if got != status || code != "" && !strings.Contains(answer, `"code":"`+code+`"`) {
		s.d.t.Errorf("%s %s: %d %s, want %d %s", method, path, got, answer, status, code)
	}
	return []byte(answer)
}

// managesOrganizations checks that what one process changes is visible on the other from its next call on. If no server
// runs on the data folder, the commands work on the configured event store and database.
func (d *deployment) managesOrganizations() {
	t := d.t
	t.Helper()
	one, two := d.processes[0], d.processes[1]
	values, err := datafolder.ReadCredentials(one.dir)
	runtest.Must(t, err)
	manager := values[datafolder.ManagementKeyName]
	for range 5 {
		var key struct{ ID, Key string }
		runtest.Must(t, json.Unmarshal(one.wants(manager, http.MethodPost, "/projects/default/keys", `{"name":"app"}`, http.StatusCreated, ""), &key))
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
	direct(nil, "org", "plan", "flex").wants(t, exitFailed, "name one with --org")
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
	direct(nil, "org", "credits", "--grant", "1", "--org", "annals").
		wants(t, exitFailed, `ANNALS_PLANS names the plan "gold"`)
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
