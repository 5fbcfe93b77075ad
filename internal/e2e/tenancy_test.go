package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	sent := struct {
		IngestionID string `json:"ingestionId"`
	}{}
	// The key of a neighbour's send is no key of this project.
	body := fmt.Sprintf(
		`{"id":%q,"content":"I like plain tea.","audience":%q,"identity":%q,"idempotencyKey":%q}`, n.source, n.audience,
		n.identity, n.idempotency,
	)
	if err := json.Unmarshal([]byte(is(202, http.MethodPost, "/ingest", body)), &sent); err != nil {
		t.Fatal(err)
	}
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
