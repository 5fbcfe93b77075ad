package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/operator"
	"github.com/annals-project/annals/internal/secret"
)

// operate gives a command to the running service and reads its answer.
func (h *house) operate(out any, args ...string) {
	h.t.Helper()
	got := annals(h.t.Context(), nil, "", append(args, "--data-dir", h.dir, "--json")...)
	if got.code != exitOK {
		h.t.Fatalf("%v: %+v", args, got)
	}
	if err := json.Unmarshal([]byte(got.stdout), out); err != nil {
		h.t.Fatalf("%v: %v in %s", args, err, got.stdout)
	}
}

// wants makes a request and wants a status, and a code where it is no 2xx.
func (h *house) wants(key, method, path string, body any, status int, code string) []byte {
	h.t.Helper()
	got, answer := h.call(key, method, path, body)
	if got != status || code != "" && !strings.Contains(string(answer), `"code":"`+code+`"`) {
		h.t.Errorf("%s %s: %d %s, want %d %s", method, path, got, answer, status, code)
	}
	return answer
}

func (h *house) credentials() map[string]string {
	h.t.Helper()
	values, err := readCredentials(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	return values
}

// The life of an organization as its operator and its applications see it, beside a neighbour to which nothing of it happens.
func TestOrganizationsProjectsAndKeys(t *testing.T) {
	t.Parallel()
	h := &house{t: t, dir: filepath.Join(t.TempDir(), "data"), sends: map[string][]string{}}
	h.start()
	first := h.credentials()
	neighbour, neighbours := first[managementKeyName], first[projectKeyName]

	var acme operator.Organization
	h.operate(&acme, "org", "create", "Acme", "--plan", "payg", "--owner-email", "ana@acme.example")
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
	answer := h.wants(manager, http.MethodPost, api+"/projects", point{"name": "More"}, http.StatusPaymentRequired, "project-limit-reached")
	if !bytes.Contains(answer, []byte(`"data":{"limit":3,"projects":3}`)) {
		t.Errorf("refused with %s", answer)
	}
	h.must(neighbour, http.MethodPost, api+"/projects", point{"name": "More"}, nil)

	// An archived project refuses its keys from the next call on, and takes them back.
	var changed operator.Project
	h.operate(&changed, "project", "archive", "default", "--org", "acme")
	h.wants(key.Key, http.MethodPost, api+"/recall", point{"query": "anything", "identity": "ana"}, http.StatusForbidden, "project-archived")
	h.must(neighbours, http.MethodPost, api+"/recall", point{"query": "anything", "identity": "ana"}, nil)
	if list := h.wants(manager, http.MethodGet, api+"/projects", nil, http.StatusOK, ""); strings.Count(string(list), `"isArchived":true`) != 1 {
		t.Errorf("projects %s", list)
	}
	h.operate(&changed, "project", "unarchive", "default", "--org", "acme")
	h.must(key.Key, http.MethodPost, api+"/recall", point{"query": "anything", "identity": "ana"}, nil)

	// Caps are seen at once, and the neighbour's stay none.
	h.operate(&changed, "project", "caps", "default", "--org", "acme", "--ingestion-cap", "1", "--credit-cap", "7.5")
	if list := h.wants(manager, http.MethodGet, api+"/projects", nil, http.StatusOK, ""); !strings.Contains(string(list), `"ingestionCap":1,`) || !strings.Contains(string(list), `"creditCap":7.5,`) {
		t.Errorf("projects %s", list)
	}
	if list := h.wants(neighbour, http.MethodGet, api+"/projects", nil, http.StatusOK, ""); strings.Contains(string(list), `"ingestionCap":1`) {
		t.Errorf("the neighbour's projects %s", list)
	}

	// A revoked key is refused from its next call, in the words of one that never was; the neighbour cannot revoke it.
	h.wants(neighbour, http.MethodDelete, api+"/projects/default/keys/"+key.ID, nil, http.StatusNotFound, "not-found")
	h.must(key.Key, http.MethodPost, api+"/recall", point{"query": "anything", "identity": "ana"}, nil)
	h.must(manager, http.MethodDelete, api+"/projects/default/keys/"+key.ID, nil, nil)
	revoked := h.wants(key.Key, http.MethodPost, api+"/recall", point{"query": "anything", "identity": "ana"}, http.StatusUnauthorized, "unauthorized")
	unknown := h.wants(secret.ProjectKeyPrefix+strings.Repeat("0", 40), http.MethodPost, api+"/recall", point{"query": "anything", "identity": "ana"}, http.StatusUnauthorized, "unauthorized")
	if !bytes.Equal(revoked, unknown) {
		t.Errorf("a revoked key is told from an unknown one: %s, %s", revoked, unknown)
	}
	h.wants(manager, http.MethodDelete, api+"/projects/default/keys/"+key.ID, nil, http.StatusNotFound, "not-found")

	// The rotated key works and the former one does not; the credentials file follows the first organization's, and no other's.
	var rotated operator.Organization
	h.operate(&rotated, "org", "rotate-management-key", "--org", "Acme")
	h.wants(manager, http.MethodGet, api+"/projects", nil, http.StatusUnauthorized, "unauthorized")
	h.must(rotated.ManagementKey, http.MethodGet, api+"/projects", nil, nil)
	if got := h.credentials(); rotated.CredentialsFile != "" || got[managementKeyName] != neighbour {
		t.Errorf("the file follows another organization: %+v, %v", rotated, got)
	}
	for range 2 {
		h.operate(&rotated, "org", "rotate-management-key", "--org", "Annals")
		if got := h.credentials(); got[managementKeyName] != rotated.ManagementKey || got[projectKeyName] != neighbours {
			t.Errorf("the file holds %v, rotated %+v", got, rotated)
		}
	}
	h.must(rotated.ManagementKey, http.MethodGet, api+"/projects", nil, nil)
	// A crash between the rotation and the file leaves an older key of the organization there.
	stale := h.credentials()
	stale[managementKeyName] = neighbour
	if err := writeCredentials(h.dir, stale); err != nil {
		t.Fatal(err)
	}
	h.operate(&rotated, "org", "rotate-management-key", "--org", "Annals")
	if got := h.credentials(); got[managementKeyName] != rotated.ManagementKey {
		t.Errorf("the file keeps a key that a crash left: %v", got)
	}

	// The events say who did it.
	for _, e := range h.events() {
		if e.Type == "project.archived.v1" && !bytes.Contains(e.Meta, []byte(`"principal":"operator `)) {
			t.Errorf("archived by %s", e.Meta)
		}
	}
	h.nowhereInClear(manager, key.Key, neighbour, neighbours, rotated.ManagementKey)
}

// nowhereInClear looks for the clear values of keys in the log and in the tables.
func (h *house) nowhereInClear(keys ...string) {
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
			err := h.st.db.QueryRow(h.t.Context(), `select count(*) from `+table+` x where strpos(x::text, $1) > 0 or strpos(x::text, encode($1::bytea, 'hex')) > 0`, key).Scan(&rows)
			if err != nil || rows > 0 {
				h.t.Errorf("%d rows of %s hold a key in clear, %v", rows, table, err)
			}
		}
	}
}

// What a crash left of the creation of an organization: its keys are refused until it is prepared, which the next start sees to, and a
// service that runs.
func TestAnOrganizationThatIsPreparing(t *testing.T) {
	t.Parallel()
	var held atomic.Bool
	h := &house{t: t, dir: filepath.Join(t.TempDir(), "data"), sends: map[string][]string{}}
	h.arrange = func(p *process) {
		prepare := p.prepare
		p.prepareEvery = 10 * time.Millisecond
		p.prepare = func(ctx context.Context) error {
			if held.Load() {
				return nil
			}
			return prepare(ctx)
		}
	}
	h.start()
	held.Store(true)
	crashed, key := h.crashedCreation("Crashed")
	late, other := h.crashedCreation("Late")
	for method, path := range map[string]string{http.MethodGet: "/projects", http.MethodPost: "/projects", http.MethodPut: "/identities/ana?project=default"} {
		h.wants(key, method, api+path, point{}, http.StatusServiceUnavailable, "organization-not-ready")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.urls.API+api+"/projects", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil || res.Header.Get("Retry-After") != "5" {
		t.Errorf("headers %v, %v", res.Header, err)
	}
	h.must(h.credentials()[managementKeyName], http.MethodGet, api+"/projects", nil, nil)

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
	h.eventually("the organization is prepared", func() bool {
		status, _ := h.call(another, http.MethodGet, api+"/projects", nil)
		return status == http.StatusOK
	})
	h.isPrepared(third)
}

// crashedCreation writes what a creation writes first, and no more, and the key by which its calls can be made.
func (h *house) crashedCreation(name string) (id uuid.UUID, clear string) {
	h.t.Helper()
	key, err := secret.NewManagementKey()
	if err != nil {
		h.t.Fatal(err)
	}
	id, at := uuid.New(), h.now()
	log, ctx := h.operatorProjections.log, h.t.Context()
	facts, err := log.ReadFrom(ctx, stream.Registry, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	meta := event.Meta{CommandID: uuid.New(), Principal: "operator"}
	_, err = log.Append(ctx, stream.Registry, eventstore.Revision(len(facts)-1), meta,
		registry.OrganizationCreated{OrganizationID: id, Name: name, Plan: metering.Flex, OwnerEmail: "ana@acme.example", CreatedAt: at})
	if err != nil {
		h.t.Fatal(err)
	}
	meta.CommandID = uuid.New()
	done, err := log.Append(ctx, stream.Name(stream.Organization, id), eventstore.NoStream, meta,
		organization.ManagementKeySet{OrganizationID: id, KeyID: uuid.New(), Hash: key.Hash, Prefix: key.Prefix, Suffix: key.Suffix, SetAt: at})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.waiter.Wait(ctx, done.Position, "access"); err != nil {
		h.t.Fatal(err)
	}
	return id, key.Clear
}

func (h *house) isPrepared(id uuid.UUID) {
	h.t.Helper()
	facts, err := h.operatorProjections.log.ReadFrom(h.t.Context(), stream.Name(stream.Organization, id), 0)
	if err != nil {
		h.t.Fatal(err)
	}
	var state organization.State
	for _, f := range facts {
		state.Evolve(f.Event)
	}
	if !state.Prepared || state.Members != 1 || state.Plan != metering.Flex || !state.Started || len(state.KeyHashes) != 1 {
		h.t.Errorf("prepared as %+v", state)
	}
}

// behind stands for projections that do not come to see what is written.
type behind struct{}

func (behind) Wait(ctx context.Context, _ eventstore.Position, _ ...string) error {
	return errors.New("late")
}

// A new key is shown although the service is behind: it can be shown only now. What is not so yet is said.
func TestANewKeyIsShownAlthoughTheServiceIsBehind(t *testing.T) {
	t.Parallel()
	h := &house{t: t, dir: filepath.Join(t.TempDir(), "data"), sends: map[string][]string{}}
	h.start()
	o := organizations{commands: commands.New(commands.Config{Log: h.operatorProjections.log, Waiter: behind{}}), dataDir: h.dir, now: now}
	rotated, err := o.RotateManagementKey(t.Context(), operator.RotateRequest{})
	if err != nil || rotated.Warning == "" || rotated.CredentialsFile == "" {
		t.Errorf("rotated %+v, %v", rotated, err)
	}
	made, err := o.CreateOrganization(t.Context(), operator.NewOrganization{Name: "Acme", Plan: "flex"})
	if err != nil || made.Warning == "" {
		t.Errorf("created %+v, %v", made, err)
	}
	for _, key := range []string{rotated.ManagementKey, made.ManagementKey} {
		h.eventually("the key works", func() bool {
			status, _ := h.call(key, http.MethodGet, api+"/projects", nil)
			return status == http.StatusOK
		})
	}
	if _, err := o.SetCaps(t.Context(), operator.CapsRequest{Whom: operator.Whom{Organization: "annals"}, Slug: "default", SetIngestion: true, Ingestion: new(int64)}); !errors.Is(err, operator.ErrRefused) {
		t.Errorf("a cap that is not seen yet is said to be: %v", err)
	}
}

// A key is kept sealed while it lives, from the first one on, and a new seal key takes over at a start.
func TestKeysAreKeptSealed(t *testing.T) {
	t.Parallel()
	h := &house{t: t, dir: filepath.Join(t.TempDir(), "data"), sends: map[string][]string{}}
	h.start()
	first := h.credentials()
	var key struct{ ID, Key string }
	h.must(first[managementKeyName], http.MethodPost, api+"/projects/default/keys", point{"name": "app"}, &key)
	drawn, err := keptSealKeys(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	h.reveals(drawn, first[projectKeyName], key.Key)

	h.stop()
	fresh := sealed(7)
	h.set = func(s *Settings) { s.SealKey = base64Of(fresh) }
	h.start()
	h.reveals([][]byte{fresh}, first[projectKeyName], key.Key)
	if err := os.Remove(filepath.Join(h.dir, sealKeyFile)); err != nil { // the former key can be given up
		t.Fatal(err)
	}
	h.must(first[managementKeyName], http.MethodDelete, api+"/projects/default/keys/"+key.ID, nil, nil)
	h.reveals([][]byte{fresh}, first[projectKeyName])
	h.stop()
	h.start()
	h.reveals([][]byte{fresh}, first[projectKeyName])
}

// reveals wants the vault to show exactly these keys under the seal keys.
func (h *house) reveals(seal [][]byte, want ...string) {
	h.t.Helper()
	sealer, err := secret.NewSealer(seal...)
	if err != nil {
		h.t.Fatal(err)
	}
	vault := secret.Vault{DB: h.st.db, Sealer: sealer}
	for _, clear := range want {
		var id uuid.UUID
		hash := secret.Hash(clear)
		if err := h.st.db.QueryRow(h.t.Context(), `select id from access.keys where hash = $1`, hash[:]).Scan(&id); err != nil {
			h.t.Fatal(err)
		}
		if got, ok, err := vault.Reveal(h.t.Context(), id); err != nil || !ok || got != clear {
			h.t.Errorf("revealed %q, %v, %v", got, ok, err)
		}
	}
	var rows int
	if err := h.st.db.QueryRow(h.t.Context(), `select count(*) from ops.sealed_keys`).Scan(&rows); err != nil || rows != len(want) {
		h.t.Errorf("%d keys are kept, want %d, %v", rows, len(want), err)
	}
}
