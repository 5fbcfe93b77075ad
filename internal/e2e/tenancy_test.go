package e2e

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/readapi"
)

var changing = []struct {
	is *regexp.Regexp
	as string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uuid>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`), "<instant>"},
	{regexp.MustCompile(`"projectId":\d+`), `"projectId":<number>`},
	{regexp.MustCompile(`"(key|keyPrefix|keySuffix|endCursor|idempotencyKey)":"[^"]*"`), `"$1":"<$1>"`},
}

// plain is an answer without what differs between any two calls, and without the names that the
// caller sent.
func plain(body string, n names, own tenant) string {
	for name, as := range map[string]string{
		n.source: "<source>", n.identity: "<identity>", n.audience: "<audience>", n.trait: "<trait>", n.project: "<project>", n.value: "<value>", n.words: "<words>", n.webhook: "<webhook>", own.slug: "<own>",
	} {
		body = strings.ReplaceAll(body, name, as)
	}
	for _, c := range changing {
		body = c.is.ReplaceAllString(body, c.as)
	}
	return body
}

// TestTenancy walks every route that is served with the ids and slugs of a neighbour project and of
// a neighbour organization. The caller finds nothing, learns nothing (the answer is that to a name
// that never existed), and changes nothing.
func TestTenancy(t *testing.T) {
	t.Parallel()
	onEngines(t, tenancyWalk)
}

func tenancyWalk(t *testing.T, index []string) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	y := &tenancy{
		service: newService(t, append(index, sharedPostgres(t))...),
		http:    &http.Client{Transport: apitest.Load(t, readapi.OpenAPI).Transport(t, transport)},
	}
	y.start()
	y.management, y.other = y.credentials()["ANNALS_MANAGEMENT_KEY"], y.organization(otherOrganization)

	type neighbour struct {
		tenant
		names
		before map[string]string
	}
	neighbours := map[string]*neighbour{}
	for name, management := range map[string]string{"project": y.management, "organization": y.other} {
		v, n := y.victim(management)
		neighbours[name] = &neighbour{tenant: v, names: n, before: y.seen(v, n)}
	}

	scout, _ := y.newTenant(y.management, walkBegins)
	_, y.token = y.newWebhook(ownOrganization, scout.slug)
	served := 0
	for _, r := range auth.Routes() {
		if !y.built(r, scout) {
			continue
		}
		served++
		route := r.Method + " " + strings.TrimPrefix(r.Path, auth.Prefix)
		attack := attacks[route]
		if attack == nil {
			t.Errorf("%s is served, and no attack on it is written down", route)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(neighbours)) {
			v := neighbours[name]
			kinds := r.Keys
			if r.Webhook { // it takes no key: one in its header changes nothing
				kinds = []auth.Kind{auth.ManagementKey}
			}
			for _, kind := range kinds {
				if kind == auth.ManagementKey && !v.far && !attack.within {
					continue // its own organization
				}
				t.Run(fmt.Sprintf("%s of a neighbour %s with a %s", route, name, kind), func(t *testing.T) {
					before := v.before
					y.attack(t, r, attack, kind, v.names)
					v.before = y.seen(v.tenant, v.names)
					if diff := cmp.Diff(before, v.before); diff != "" {
						t.Errorf("the neighbour's own (-before +after):\n%s", diff)
					}
				})
			}
		}
	}
	if served < 10 {
		t.Errorf("only %d routes are served", served)
	}
	for name, v := range neighbours {
		t.Run("all names of a neighbour "+name+" used and deleted", func(t *testing.T) {
			y.sameNames(t, v.names)
			if diff := cmp.Diff(v.before, y.seen(v.tenant, v.names)); diff != "" {
				t.Errorf("the neighbour's own (-before +after):\n%s", diff)
			}
		})
	}
	y.untouched(slices.Collect(maps.Keys(neighbours)), func(name string) string { return neighbours[name].slug })
	for name, v := range neighbours {
		if !y.recalled(v.tenant, v.names) {
			t.Errorf("the neighbour %s recalls its own no more", name)
		}
	}
}

// attack makes the calls of an attack on what a neighbour has, and the same calls on what nobody
// has, each from a new project.
func (y *tenancy) attack(t *testing.T, r auth.Route, a *attack, kind auth.Kind, victim names) {
	t.Helper()
	nobody := someNames()
	nobody.far = victim.far
	own, _ := y.newTenant(y.management, "Attacker "+time.Now().String())
	twin, _ := y.newTenant(y.management, "Attacker "+time.Now().String())
	own.token, twin.token = y.token, y.token
	calls, twins := a.requests(victim, own, kind), a.requests(nobody, twin, kind)
	for i, c := range calls {
		status, body := y.call(own.by(kind), r.Method, c.path, c.body)
		if status != c.want {
			t.Errorf("%s: %d, want %d\n%s", c.path, status, c.want, body)
		}
		for _, secret := range []string{victim.value, victim.label, victim.words, victim.title} {
			if strings.Contains(body, secret) && !strings.Contains(c.body, secret) {
				t.Errorf("%s: the answer holds %s\n%s", c.path, secret, body)
			}
		}
		if c.grows {
			if strings.Contains(body, `"`+victim.project+`"`) {
				t.Errorf("%s: the answer names the neighbour\n%s", c.path, body)
			}
			continue
		}
		twinStatus, twinBody := y.call(twin.by(kind), r.Method, twins[i].path, twins[i].body)
		never := fmt.Sprint(twinStatus, plain(twinBody, nobody, twin))
		if diff := cmp.Diff(never, fmt.Sprint(status, plain(body, victim, own))); diff != "" {
			t.Errorf("%s: the answer is not that to what never existed (-never +neighbour):\n%s", c.path, diff)
		}
	}
}

// The projects whose creation marks the walk in the log.
const walkBegins, walkEnds = "The walk begins", "The walk ends"

// errEnd ends the reading of the log.
var errEnd = errors.New("the log is read")

// storedEvent is an event as "annals events tail" prints it.
type storedEvent struct {
	Stream, Type string
	Data         json.RawMessage
}

// tail passes on the events of the log from its beginning until emit fails.
func (y *tenancy) tail(emit func(storedEvent) error) error {
	ctx, cancel := context.WithCancel(y.t.Context())
	defer cancel()
	command := exec.CommandContext(ctx, binary, "events", "tail", "--from", "start", "--json", "--data-dir", y.dir)
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	defer func() { _ = command.Wait() }() // the cancellation ends it
	defer cancel()
	for lines := json.NewDecoder(out); ; {
		var e storedEvent
		if err := lines.Decode(&e); err != nil {
			return err
		}
		if err := emit(e); err != nil {
			return err
		}
	}
}

// untouched reads the log: since the walk began no event is about a project of the neighbours, but
// for what they recall themselves.
func (y *tenancy) untouched(neighbours []string, slug func(neighbour string) string) {
	y.t.Helper()
	y.newTenant(y.management, walkEnds)
	projects, walking, read := map[string]string{}, false, 0
	err := y.tail(func(e storedEvent) error {
		if e.Type == (registry.ProjectCreated{}).EventType() {
			var created registry.ProjectCreated
			if err := json.Unmarshal(e.Data, &created); err != nil {
				return err
			}
			switch created.Name {
			case walkBegins:
				walking = true
			case walkEnds:
				return errEnd
			}
			for _, name := range neighbours {
				if created.Slug == slug(name) {
					projects[name] = created.ProjectID.String()
				}
			}
		}
		if !walking || e.Type == (metering.Charged{}).EventType() {
			return nil
		}
		read++
		for name, id := range projects {
			if strings.Contains(string(e.Data)+e.Stream, id) {
				y.t.Errorf("%s of the neighbour %s: %s", e.Type, name, e.Data)
			}
		}
		return nil
	})
	if !errors.Is(err, errEnd) || len(projects) != len(neighbours) || read == 0 {
		y.t.Errorf("read the log: %v, with %d events and the projects %v", err, read, projects)
	}
}

// sameNames makes, recalls and deletes a caller's own of every name of a neighbour.
func (y *tenancy) sameNames(t *testing.T, n names) {
	t.Helper()
	own, _ := y.newTenant(y.management, "Namesake")
	is := func(want int, method, path, body string) string {
		t.Helper()
		status, answer := y.call(own.key, method, path, body)
		if status != want {
			t.Errorf("%s %s: %d, want %d\n%s", method, path, status, want, answer)
		}
		return answer
	}
	audience := fmt.Sprintf(`{"kind":"fixed","identities":[%q]}`, n.identity)
	is(201, http.MethodPut, "/audiences/"+n.audience, audience)
	var sent struct{ IngestionID string }
	// The key of a neighbour's send is no key of this project.
	body := fmt.Sprintf(
		`{"id":%q,"content":"I like plain tea.","audience":%q,"identity":%q,"idempotencyKey":%q}`, n.source, n.audience,
		n.identity, n.idempotency,
	)
	runtest.Must(t, json.Unmarshal([]byte(is(202, http.MethodPost, "/ingest", body)), &sent))
	runtest.Await(t, "the send is settled", func() bool {
		return y.must(own.key, http.MethodGet, "/ingest/"+sent.IngestionID, "")["settled"] == true
	})
	query := fmt.Sprintf(`{"query":"secret tea %s","identity":%q}`, n.words, n.identity)
	if found := is(200, http.MethodPost, "/recall", query); !strings.Contains(found, "plain tea") ||
		strings.Contains(found, "secret") {
		t.Errorf("its own recall: %s", found)
	}
	is(200, http.MethodPut, "/identities/"+n.identity, fmt.Sprintf(`{"traits":{%q:"other"}}`, n.trait))
	is(204, http.MethodDelete, "/audiences/"+n.audience, "")
	is(201, http.MethodPut, "/audiences/"+n.audience, audience)
	is(204, http.MethodDelete, "/identities/"+n.identity, "")
	is(202, http.MethodDelete, "/data-points/"+n.source, "")
	is(204, http.MethodDelete, "/ingest/"+sent.IngestionID, "")
	if found := is(200, http.MethodPost, "/recall", query); !strings.Contains(found, `"results":[]`) {
		t.Errorf("its own recall of what is deleted: %s", found)
	}
}

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
	runtest.Must(y.t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := y.http.Do(req)
	runtest.Must(y.t, err)
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	runtest.Must(y.t, err)
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
	var created struct{ ManagementKey string }
	if y.decoded(&created, "org", "create", name); created.ManagementKey == "" {
		y.t.Fatal("an organization without a management key")
	}
	return created.ManagementKey
}

// organizationID is the id of an organization, by the command line.
func (y *tenancy) organizationID(name string) string {
	y.t.Helper()
	var shown struct{ ID uuid.UUID }
	if y.decoded(&shown, "org", "show", "--org", name); shown.ID == uuid.Nil {
		y.t.Fatal("an organization without an id")
	}
	return shown.ID.String()
}

// newWebhook creates a webhook of a project by the command line. It returns the id and the token, the two last parts of
// the URL.
func (y *tenancy) newWebhook(organization, project string) (id, token string) {
	y.t.Helper()
	var created struct{ ID, URL string }
	y.decoded(&created, "webhook", "create", "--org", organization, "--project", project, "--name", "Tickets",
		"--content-path", "$.content", "--id-path", "$.id")
	if created.ID == "" {
		y.t.Fatal("a webhook without an id")
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
