package e2e

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
)

// tenant is a project with a key, and the management key of its organization.
type tenant struct {
	key, management, slug string
	// token is that of a webhook of the same organization, "" for a victim.
	token string
}

// names are what a caller may have heard of a tenant: ids, slugs and a cursor, and the data of
// those, which nobody else may read.
type names struct {
	source, ingestion, identity, audience, trait, project, keyID, cursor, idempotency string
	value, label, words, title, node, request, webhook, organization                  string
	// far is of another organization.
	far bool
}

// someNames are names of nothing, as long as those of a tenant are.
func someNames() names {
	raw := make([]byte, 6)
	if _, err := rand.Read(raw); err != nil {
		panic(err)
	}
	tag := hex.EncodeToString(raw)
	return names{
		source: "source-" + tag, ingestion: uuid.Must(uuid.NewV7()).String(), identity: "identity-" + tag, audience: "audience-" + tag,
		trait: "trait-" + tag, project: "secret-" + tag, keyID: uuid.NewString(), idempotency: "once-" + tag,
		value: "value-" + tag, label: "label-" + tag, words: "zebra" + tag, title: "title-" + tag, node: uuid.NewString(),
		request: uuid.Must(uuid.NewV7()).String(), webhook: "whk_12345678" + tag,
		organization: uuid.NewString(),
	}
}

// request is one call of an attack, below /api/v1.
type request struct {
	path, body string
	want       int
	// grows is set if the answer shows the caller's whole organization, which grows while the test
	// creates projects.
	grows bool
}

// tenancy is an installation with two organizations.
type tenancy struct {
	*service
	// http holds every answer against the OpenAPI document.
	http              *http.Client
	management, other string
	// token is that of a webhook of the attackers.
	token string
}

// call makes a request, and answers its status and body.
func (y *tenancy) call(key, method, path, body string) (int, string) {
	y.t.Helper()
	req, err := http.NewRequestWithContext(y.t.Context(), method, "http://"+y.addr+auth.Prefix+path,
		strings.NewReader(body))
	if err != nil {
		y.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := y.http.Do(req)
	if err != nil {
		y.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		y.t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

// must is call that has to succeed; it reads the answer.
func (y *tenancy) must(key, method, path, body string) (answer map[string]any) {
	y.t.Helper()
	var status int
	var text string
	runtest.Await(y.t, method+" "+path+" is not refused for load", func() bool {
		status, text = y.call(key, method, path, body)
		return status != http.StatusServiceUnavailable
	})
	if status/100 != 2 {
		y.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		y.t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
	return answer
}

// newTenant makes a project with a key. keyID is the id of that key.
func (y *tenancy) newTenant(management, name string) (made tenant, keyID string) {
	y.t.Helper()
	slug := y.must(management, http.MethodPost, "/projects", fmt.Sprintf(`{"name":%q}`, name))["slug"].(string)
	key := y.must(management, http.MethodPost, "/projects/"+slug+"/keys", `{"name":"k"}`)
	return tenant{key: key["key"].(string), management: management, slug: slug}, key["id"].(string)
}

// The organizations of an installation: the one of the first start, and the one that is created.
const ownOrganization, otherOrganization = "Annals", "Next door"

// organization makes one by the command line, and returns its management key.
func (y *tenancy) organization(name string) string {
	y.t.Helper()
	out, err := exec.Command(binary, "org", "create", name, "--data-dir", y.dir, "--json").Output()
	var created struct {
		ManagementKey string `json:"managementKey"`
	}
	if err = errors.Join(err, json.Unmarshal(out, &created)); err != nil || created.ManagementKey == "" {
		y.t.Fatalf("create an organization: %v\n%s", err, out)
	}
	return created.ManagementKey
}

// organizationID is the id of an organization, by the command line.
func (y *tenancy) organizationID(name string) string {
	y.t.Helper()
	out, err := exec.Command(binary, "org", "show", "--org", name, "--data-dir", y.dir, "--json").Output()
	var shown struct{ ID uuid.UUID }
	if err = errors.Join(err, json.Unmarshal(out, &shown)); err != nil || shown.ID == uuid.Nil {
		y.t.Fatalf("show an organization: %v\n%s", err, out)
	}
	return shown.ID.String()
}

// newWebhook creates a webhook of a project by the command line. It returns the id and the token, the two last parts of
// the URL.
func (y *tenancy) newWebhook(organization, project string) (id, token string) {
	y.t.Helper()
	out, err := exec.Command(binary, "webhook", "create", "--org", organization, "--project", project, "--name", "Tickets",
		"--content-path", "$.content", "--id-path", "$.id", "--data-dir", y.dir, "--json").Output()
	var created struct{ ID, URL string }
	if err = errors.Join(err, json.Unmarshal(out, &created)); err != nil || created.ID == "" {
		y.t.Fatalf("create a webhook: %v\n%s", err, out)
	}
	return created.ID, path.Base(created.URL)
}

// victim is a tenant that holds something of every kind, and what a caller may have heard of it.
func (y *tenancy) victim(management string) (tenant, names) {
	y.t.Helper()
	n := someNames()
	v, keyID := y.newTenant(management, n.project)
	n.project, n.keyID, n.far = v.slug, keyID, management == y.other
	organization := ownOrganization
	if n.far {
		organization = otherOrganization
	}
	n.webhook, _ = y.newWebhook(organization, v.slug)
	n.organization = y.organizationID(organization)
	y.must(management, http.MethodPost, "/projects", fmt.Sprintf(`{"name":"%s b"}`, n.project))
	traits := fmt.Sprintf(`{"traits":{%q:%q}}`, n.trait, n.value)
	y.must(v.key, http.MethodPut, "/identities/"+n.identity, traits)
	y.must(v.key, http.MethodPut, "/identities/"+n.identity+"-b", traits)
	n.cursor = y.must(v.key, http.MethodGet, "/identities?limit=1", "")["endCursor"].(string)
	y.must(v.key, http.MethodPut, "/audiences/"+n.audience,
		fmt.Sprintf(`{"kind":"fixed","name":%q,"identities":[%q]}`, n.title, n.identity))
	sent := y.must(
		v.key,
		http.MethodPost,
		"/ingest",
		fmt.Sprintf(`{"id":%q,"label":%q,"content":"My secret is %s.","identity":%q,"audience":%q,"idempotencyKey":%q}`,
			n.source, n.label, n.words, n.identity, n.audience, n.idempotency),
	)
	n.ingestion = sent["ingestionId"].(string)
	runtest.Await(y.t, "the send is settled", func() bool {
		return y.must(v.key, http.MethodGet, "/ingest/"+n.ingestion, "")["settled"] == true
	})
	roots := y.must(v.key, http.MethodGet, "/trace/roots?search="+n.source, "")["sources"].(map[string]any)
	n.node = roots["nodes"].([]any)[0].(map[string]any)["id"].(string)
	runtest.Await(y.t, "the send is logged", func() bool {
		logged := y.must(v.key, http.MethodGet, "/requests?search="+n.source, "")["requests"].([]any)
		if len(logged) == 0 {
			return false
		}
		n.request = logged[0].(map[string]any)["requestId"].(string)
		return true
	})
	// Its own last recall is seen before the walk begins, so that no other can be taken for it.
	var recalled time.Time
	runtest.Await(y.t, "the text is recalled", func() bool {
		recalled = time.Now()
		return y.recalled(v, n)
	})
	runtest.Await(y.t, "the recall is shown as last seen", func() bool {
		text, _ := y.must(v.key, http.MethodGet, "/identities/"+n.identity, "")["lastSeenAt"].(string)
		seen, err := time.Parse(time.RFC3339Nano, text)
		return err == nil && !seen.Before(recalled.Truncate(time.Microsecond))
	})
	return v, n
}

// seen is what a victim reads of its own, but for recall, which counts itself.
func (y *tenancy) seen(v tenant, n names) map[string]string {
	y.t.Helper()
	answers := map[string]string{}
	for _, path := range []string{
		"/identities", "/identities/" + n.identity, "/audiences", "/audiences/" + n.audience, "/ingest/" + n.ingestion, "/usage",
		"/trace/nodes/" + n.node, "/trace/lineage/" + n.node + "?revealAll=true",
	} {
		status, body := y.call(v.key, http.MethodGet, path, "")
		if status != http.StatusOK {
			y.t.Errorf("the neighbour's own %s: %d %s", path, status, body)
		}
		answers[path] = body
	}
	for _, p := range y.must(v.management, http.MethodGet, "/projects", "")["projects"].([]any) {
		if p := p.(map[string]any); p["slug"] == v.slug {
			answers["/projects"] = fmt.Sprint(p)
		}
	}
	return answers
}

// recalled is whether the victim still recalls its words as the one identity that its audience
// reaches.
func (y *tenancy) recalled(v tenant, n names) bool {
	y.t.Helper()
	_, body := y.call(v.key, http.MethodPost, "/recall", fmt.Sprintf(`{"query":%q,"identity":%q}`, n.words, n.identity))
	return strings.Contains(body, n.words) && strings.Contains(body, n.label)
}

// built reports whether a route is served.
func (y *tenancy) built(r auth.Route, by tenant) bool {
	key := by.key
	if !r.Takes(auth.ProjectKey) {
		key = by.management
	}
	status, body := y.call(key, r.Method, strings.TrimPrefix(filled(r.Path), auth.Prefix), "")
	return status != http.StatusNotFound || !strings.Contains(body, "nothing is served at this path")
}

// filled is a template with a value for each parameter.
func filled(template string) string {
	return regexp.MustCompile(`:\w+`).ReplaceAllString(template, "01890000-0000-7000-8000-00000000000a")
}

// by is the tenant's key of a kind.
func (n tenant) by(kind auth.Kind) string {
	if kind == auth.ManagementKey {
		return n.management
	}
	return n.key
}
