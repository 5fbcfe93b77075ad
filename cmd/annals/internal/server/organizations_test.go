package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

// wants makes a request and checks the status, and the code of a failure.
func (h *harness) wants(key, method, path string, body any, status int, code string) []byte {
	h.t.Helper()
	got, answer := h.call(key, method, path, body)
	if got != status || code != "" && !strings.Contains(string(answer), `"code":"`+code+`"`) {
		h.t.Errorf("%s %s: %d %s, want %d %s", method, path, got, answer, status, code)
	}
	return answer
}

// followsAnOrganization follows an organization as its operator and its applications see it. A second organization must
// not change.
func (h *harness) followsAnOrganization() {
	t := h.t
	t.Helper()
	first := h.credentials()
	neighbour, neighbours := first[datafolder.ManagementKeyName], first[datafolder.ProjectKeyName]

	acme := h.createAcme()
	manager := acme.ManagementKey
	if acme.Granted != "400000" || acme.Plan != "payg" {
		t.Errorf("created %+v", acme)
	}
	var project struct{ Slug string }
	h.must(manager, http.MethodPost, api+"/projects", point{"name": "Default"}, &project)
	var key struct{ ID, Key string }
	h.must(manager, http.MethodPost, api+"/projects/default/keys", point{"name": "app"}, &key)
	h.must(key.Key, http.MethodPost, api+"/recall", point{"query": "anything", "identity": "ana"}, nil)

	// The plan has three projects, archived ones too.
	for range 2 {
		h.must(manager, http.MethodPost, api+"/projects", point{"name": "More"}, nil)
	}
	answer := h.wants(manager, http.MethodPost, api+"/projects", point{"name": "More"}, http.StatusPaymentRequired,
		"project-limit-reached")
	if !bytes.Contains(answer, []byte(`"data":{"limit":3,"projects":3}`)) {
		t.Errorf("refused with %s", answer)
	}
	h.must(neighbour, http.MethodPost, api+"/projects", point{"name": "More"}, nil)

	// An archived project refuses its keys from the next call on, until it is unarchived.
	h.setArchived("acme", "default", true)
	h.wants(key.Key, http.MethodPost, api+"/recall", point{"query": "anything", "identity": "ana"},
		http.StatusForbidden, "project-archived")
	h.must(neighbours, http.MethodPost, api+"/recall", point{"query": "anything", "identity": "ana"}, nil)
	if list := h.wants(manager, http.MethodGet, api+"/projects", nil, http.StatusOK, ""); strings.Count(string(list), `"isArchived":true`) != 1 {
		t.Errorf("projects %s", list)
	}
	h.setArchived("acme", "default", false)
	h.must(key.Key, http.MethodPost, api+"/recall", point{"query": "anything", "identity": "ana"}, nil)

	// Caps are visible at once. The neighbour still has none.
	h.setCaps("acme", "default", new(int64(1)), new(int64(75)))
	if list := h.wants(manager, http.MethodGet, api+"/projects", nil, http.StatusOK, ""); !strings.Contains(string(list), `"ingestionCap":1,`) || !strings.Contains(string(list), `"creditCap":7.5,`) {
		t.Errorf("projects %s", list)
	}
	if list := h.wants(neighbour, http.MethodGet, api+"/projects", nil, http.StatusOK, ""); strings.Contains(string(list), `"ingestionCap":1`) {
		t.Errorf("the neighbour's projects %s", list)
	}

	// A revoked key is refused from its next call, with the answer for an unknown key. The neighbour
	// cannot revoke it.
	h.wants(neighbour, http.MethodDelete, api+"/projects/default/keys/"+key.ID, nil, http.StatusNotFound, "not-found")
	h.must(key.Key, http.MethodPost, api+"/recall", point{"query": "anything", "identity": "ana"}, nil)
	h.must(manager, http.MethodDelete, api+"/projects/default/keys/"+key.ID, nil, nil)
	revoked := h.wants(key.Key, http.MethodPost, api+"/recall", point{"query": "anything", "identity": "ana"},
		http.StatusUnauthorized, "unauthorized")
	unknown := h.wants(secret.ProjectKeyPrefix+strings.Repeat("0", 40), http.MethodPost, api+"/recall",
		point{"query": "anything", "identity": "ana"}, http.StatusUnauthorized, "unauthorized")
	if !bytes.Equal(revoked, unknown) {
		t.Errorf("a revoked key is answered unlike an unknown one: %s, %s", revoked, unknown)
	}
	h.wants(manager, http.MethodDelete, api+"/projects/default/keys/"+key.ID, nil, http.StatusNotFound, "not-found")

	// The rotated key works and the former one does not. The credentials file follows only the first
	// organization.
	rotated := h.rotateKey("Acme")
	h.wants(manager, http.MethodGet, api+"/projects", nil, http.StatusUnauthorized, "unauthorized")
	h.must(rotated.ManagementKey, http.MethodGet, api+"/projects", nil, nil)
	if got := h.credentials(); rotated.CredentialsFile != "" || got[datafolder.ManagementKeyName] != neighbour {
		t.Errorf("the file follows another organization: %+v, %v", rotated, got)
	}
	for range 2 {
		rotated = h.rotateKey("Annals")
		if got := h.credentials(); got[datafolder.ManagementKeyName] != rotated.ManagementKey ||
			got[datafolder.ProjectKeyName] != neighbours {
			t.Errorf("the file holds %v, rotated %+v", got, rotated)
		}
	}
	h.must(rotated.ManagementKey, http.MethodGet, api+"/projects", nil, nil)
	// A crash between the rotation and the file leaves an older key of the organization there.
	stale := h.credentials()
	stale[datafolder.ManagementKeyName] = neighbour
	if err := datafolder.WriteCredentials(h.dir, stale); err != nil {
		t.Fatal(err)
	}
	rotated = h.rotateKey("Annals")
	if got := h.credentials(); got[datafolder.ManagementKeyName] != rotated.ManagementKey {
		t.Errorf("the file keeps a key that a crash left: %v", got)
	}

	// The events name the principal.
	for _, e := range h.events() {
		if e.Type == "project.archived.v1" && !bytes.Contains(e.Meta, []byte(`"principal":"operator `)) {
			t.Errorf("archived by %s", e.Meta)
		}
	}
	h.nowhereInClear(manager, key.Key, neighbour, neighbours, rotated.ManagementKey)
}

// nowhereInClear checks that the log and the tables hold no clear value of the keys.
func (h *harness) nowhereInClear(keys ...string) {
	h.t.Helper()
	for _, e := range h.events() {
		for _, key := range keys {
			if bytes.Contains(e.Data, []byte(key)) || bytes.Contains(e.Meta, []byte(key)) {
				h.t.Errorf("a key is in clear in %s of %s", e.Type, e.Stream)
			}
		}
	}
	for _, table := range []string{"access.keys", "access.organizations", "ops.sealed_keys"} {
		for _, key := range keys {
			var rows int
			err := h.storage.db.QueryRow(h.t.Context(), `select count(*) from `+table+` x where strpos(x::text, $1) > 0 or strpos(x::text, encode($1::bytea, 'hex')) > 0`, key).Scan(&rows)
			if err != nil || rows > 0 {
				h.t.Errorf("%d rows of %s hold a key in clear, %v", rows, table, err)
			}
		}
	}
}

// holdPreparations keeps organizations that are created from being prepared while held is set.
func (h *harness) holdPreparations(held *atomic.Bool) {
	h.arrange = func(p *Server) {
		prepare := p.write.preparation.prepare
		p.write.preparation.every = 10 * time.Millisecond
		p.write.preparation.prepare = func(ctx context.Context) error {
			if held.Load() {
				return nil
			}
			return prepare(ctx)
		}
	}
}

// completesCreations checks that after a crash in the creation of an organization its keys are refused, and that the
// next start and a running service complete it.
func (h *harness) completesCreations(held *atomic.Bool) {
	t := h.t
	t.Helper()
	held.Store(true)
	crashed, key := h.crashedCreation("Crashed")
	late, other := h.crashedCreation("Late")
	for method, path := range map[string]string{
		http.MethodGet: "/projects", http.MethodPost: "/projects",
		http.MethodPut: "/identities/ana?project=default",
	} {
		h.wants(key, method, api+path, point{}, http.StatusServiceUnavailable, "organization-not-ready")
	}
	if res := h.fetch(http.MethodGet, h.urls.API+api+"/projects", key, ""); res.header.Get("Retry-After") != "5" {
		t.Errorf("headers %v", res.header)
	}
	h.must(h.credentials()[datafolder.ManagementKeyName], http.MethodGet, api+"/projects", nil, nil)

	h.stop()
	held.Store(false)
	h.start()
	h.must(key, http.MethodGet, api+"/projects", nil, nil)
	h.isPrepared(crashed)
	h.must(other, http.MethodGet, api+"/projects", nil, nil)
	h.isPrepared(late)

	held.Store(true)
	third, another := h.crashedCreation("While it runs")
	h.wants(another, http.MethodGet, api+"/projects", nil, http.StatusServiceUnavailable, "organization-not-ready")
	held.Store(false)
	runtest.Await(h.t, "the organization is prepared", func() bool {
		status, _ := h.call(another, http.MethodGet, api+"/projects", nil)
		return status == http.StatusOK
	})
	h.isPrepared(third)
}

// crashedCreation writes only the first events of a creation, and returns the management key.
func (h *harness) crashedCreation(name string) (id uuid.UUID, clear string) {
	h.t.Helper()
	key, err := secret.NewManagementKey()
	if err != nil {
		h.t.Fatal(err)
	}
	id, at := uuid.New(), h.cfg.now()
	log, ctx := h.journal, h.t.Context()
	service, call := h.people()
	owner, err := service.RegisterPerson(ctx, call, "ana@"+id.String()+".example")
	if err != nil {
		h.t.Fatal(err)
	}
	facts, err := log.ReadFrom(ctx, stream.Registry, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	meta := event.NewMeta("operator", time.Now())
	_, err = log.Append(ctx, stream.Registry, eventstore.Revision(len(facts)-1), meta,
		registry.OrganizationCreated{
			OrganizationID: id, Name: name, Plan: metering.Flex,
			OwnerID: owner, WorkEmail: true, CreatedAt: at,
		})
	if err != nil {
		h.t.Fatal(err)
	}
	meta.CommandID = uuid.New()
	done, err := log.Append(ctx, stream.Name(stream.Organization, id), eventstore.NoStream, meta,
		organization.ManagementKeySet{
			OrganizationID: id, KeyID: uuid.New(), Hash: key.Hash, Prefix: key.Prefix,
			Suffix: key.Suffix, SetAt: at,
		})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.read.waiter.Wait(ctx, done.Position, "access"); err != nil {
		h.t.Fatal(err)
	}
	return id, key.Clear
}

func (h *harness) isPrepared(id uuid.UUID) {
	h.t.Helper()
	facts, err := h.journal.ReadFrom(h.t.Context(), stream.Name(stream.Organization, id), 0)
	if err != nil {
		h.t.Fatal(err)
	}
	var state organization.State
	for _, f := range facts {
		state.Evolve(f.Event)
	}
	if !state.Prepared || len(state.Members) != 1 || state.Plan != metering.Flex || !state.Started ||
		len(state.KeyHashes) != 1 {
		h.t.Errorf("prepared as %+v", state)
	}
}

// lateWaiter is a fake of projections that do not catch up.
type lateWaiter struct{}

func (lateWaiter) Wait(ctx context.Context, _ eventstore.Position, _ ...string) error {
	return errors.New("late")
}

// A new key is shown although projections lag, because it can be shown only now. A warning names
// what is not visible yet.
func TestOrganizations_NewKeyWhileProjectionsLag(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	service := commands.New(commands.Config{
		Journal: h.journal, Waiter: lateWaiter{}, Credentials: datafolder.Credentials{Dir: h.dir},
	})
	call := operatorapi.CallBy("operator", h.cfg.now())
	rotated, err := service.RotateManagementKey(t.Context(), call, "Annals")
	if err != nil || rotated.Warning == "" || rotated.CredentialsFile == "" {
		t.Errorf("rotated %+v, %v", rotated, err)
	}
	made, err := service.CreateOrganization(t.Context(), call, tenancy.NewOrganization{Name: h.name("Acme"), Plan: "flex"})
	if err != nil || made.Warning == "" {
		t.Errorf("created %+v, %v", made, err)
	}
	for _, key := range []string{rotated.ManagementKey, made.ManagementKey} {
		runtest.Await(h.t, "the key works", func() bool {
			status, _ := h.call(key, http.MethodGet, api+"/projects", nil)
			return status == http.StatusOK
		})
	}
	caps := tenancy.Caps{SetIngestion: true, Ingestion: new(int64)}
	_, err = service.SetCaps(t.Context(), call, "annals", "default", caps)
	if f, is := errors.AsType[*fault.Error](err); !is || f.Kind != fault.Unavailable {
		t.Errorf("a cap that is not seen yet is said to be: %v", err)
	}
}

// A live key is stored sealed, from the first one on. A start seals all keys with a new seal key. Then organizations
// come, change, and crash while they come.
func TestServer_KeysAreSealed(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	var held atomic.Bool
	h.holdPreparations(&held)
	h.start()
	first := h.credentials()
	var key struct{ ID, Key string }
	h.must(first[datafolder.ManagementKeyName], http.MethodPost, api+"/projects/default/keys", point{"name": "app"}, &key)
	drawn, err := datafolder.StoredSealKeys(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	h.reveals(drawn, first[datafolder.ProjectKeyName], key.Key)

	h.stop()
	fresh := bytes.Repeat([]byte{7}, datafolder.SecretBytes)
	h.set = func(s *Config) { s.Data.SealKey = base64.StdEncoding.EncodeToString(fresh) }
	h.start()
	h.reveals([][]byte{fresh}, first[datafolder.ProjectKeyName], key.Key)
	if err := os.Remove(filepath.Join(h.dir, datafolder.SealKeyFile)); err != nil { // the former key can be given up
		t.Fatal(err)
	}
	h.must(first[datafolder.ManagementKeyName], http.MethodDelete, api+"/projects/default/keys/"+key.ID, nil, nil)
	h.reveals([][]byte{fresh}, first[datafolder.ProjectKeyName])
	h.stop()
	h.start()
	h.reveals([][]byte{fresh}, first[datafolder.ProjectKeyName])
	h.followsAnOrganization()
	h.completesCreations(&held)
}

// reveals checks that the vault reveals exactly these keys with the seal keys.
func (h *harness) reveals(seal [][]byte, want ...string) {
	h.t.Helper()
	sealer, err := secret.NewSealer(seal...)
	if err != nil {
		h.t.Fatal(err)
	}
	vault := secret.Vault{DB: h.storage.db, Sealer: sealer}
	for _, clear := range want {
		var id uuid.UUID
		hash := secret.Hash(clear)
		if err := h.storage.db.QueryRow(h.t.Context(), `select id from access.keys where hash = $1`, hash[:]).Scan(&id); err != nil {
			h.t.Fatal(err)
		}
		if got, ok, err := vault.Reveal(h.t.Context(), id); err != nil || !ok || got != clear {
			h.t.Errorf("revealed %q, %v, %v", got, ok, err)
		}
	}
	var rows int
	if err := h.storage.db.QueryRow(h.t.Context(), `select count(*) from ops.sealed_keys`).Scan(&rows); err != nil || rows != len(want) {
		h.t.Errorf("%d keys are kept, want %d, %v", rows, len(want), err)
	}
}

// An operator finds, creates, reveals and revokes what belongs to any organization. A reveal is an event with the name
// of the operator.
func TestServer_OperatorListsProjectsAndKeys(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	socket := operatorapi.Dial(h.dir)
	own := h.credentials()[datafolder.ProjectKeyName]
	acme := h.createAcme()
	type request = operatorapi.TenancyRequest
	all := must(operatorapi.ListOrganizations.Call(t.Context(), socket, request{}))(t)
	projects := map[uuid.UUID]int{h.home(): 1, acme.ID: 0}
	for _, o := range all {
		if n, mine := projects[o.ID]; mine && (o.Projects != n || !o.IsPrepared) {
			t.Errorf("organization %+v", o)
		}
		delete(projects, o.ID)
	}
	if len(projects) > 0 {
		t.Errorf("not listed: %v", projects)
	}
	of, home := operatorapi.Target{Organization: acme.Name}, operatorapi.Target{Organization: h.name("Annals")}
	project := must(operatorapi.CreateProject.Call(t.Context(), socket, request{Target: of, Name: "Road map"}))(t)
	listed := must(operatorapi.ListProjects.Call(t.Context(), socket, request{Target: of}))(t)
	if len(listed) != 1 || listed[0].Slug != project.Slug || listed[0].Organization != acme.Name {
		t.Errorf("projects %+v", listed)
	}
	created := must(operatorapi.CreateKey.Call(t.Context(), socket, request{Target: of, Project: project.Slug, Name: "app"}))(t)
	question := point{"query": "anything", "identity": "ana"}
	h.must(created.Key, http.MethodPost, api+"/recall", question, nil)
	named := request{Target: of, Project: project.Slug, Key: created.ID}
	revealed := must(operatorapi.RevealKey.Call(t.Context(), socket, named))(t)
	if revealed.Key != created.Key {
		t.Errorf("revealed %+v", revealed)
	}
	list := must(operatorapi.ListKeys.Call(t.Context(), socket, request{Target: home, Project: "default"}))(t)
	if len(list) != 1 || !strings.HasSuffix(own, list[0].Suffix) || list[0].Key != "" {
		t.Errorf("keys %+v", list)
	}
	must(operatorapi.RevokeKey.Call(t.Context(), socket, named))(t)
	h.wants(created.Key, http.MethodPost, api+"/recall", question, 401, "unauthorized")

	_, several := operatorapi.ShowOrganization.Call(t.Context(), socket, request{})
	_, nameless := operatorapi.CreateKey.Call(t.Context(), socket, request{Target: of, Project: project.Slug})
	_, foreign := operatorapi.RevealKey.Call(t.Context(), socket, request{Target: home, Project: "default", Key: created.ID})
	_, revoked := operatorapi.RevealKey.Call(t.Context(), socket, named)
	_, again := operatorapi.RevokeKey.Call(t.Context(), socket, named)
	for what, err := range map[string]error{
		"no organization named": several, "a key without a name": nameless, "a key of another project": foreign,
		"a revoked key": revoked, "a revoked key again": again,
	} {
		if !errors.Is(err, operatorapi.ErrRefused) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, e := range h.events() {
		if e.Type == "project.key-revealed.v1" && !strings.Contains(string(e.Meta), `operator `) {
			t.Errorf("the event does not name the operator: %s", e.Meta)
		}
	}
	if n := h.count("project.key-revealed.v1"); n != 1 {
		t.Errorf("%d reveals are recorded, want 1", n)
	}
}

// must returns what a call returned, and fails the test with its error.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		runtest.Must(t, err)
		return v
	}
}
