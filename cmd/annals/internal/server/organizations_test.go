package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

// wants makes a request and checks the status, and the code of a failure.
func (h *harness) wants(key, method, path string, body any, status int, code string) {
	h.t.Helper()
	got, answer := h.call(key, method, path, body)
	if got != status || code != "" && !strings.Contains(string(answer), `"code":"`+code+`"`) {
		h.t.Errorf("%s %s: %d %s, want %d %s", method, path, got, answer, status, code)
	}
}

// rotatesKeys checks that the credentials file follows the management key of the first organization alone, and that no
// key is anywhere in clear.
func (h *harness) rotatesKeys() {
	t := h.t
	t.Helper()
	first := h.credentials()
	neighbour, neighbours := first[datafolder.ManagementKeyName], first[datafolder.ProjectKeyName]
	manager := h.createAcme().ManagementKey
	key := h.newProject(manager, "Default")
	h.must(key, http.MethodPost, api+"/recall", point{"query": "anything", "identity": "ana"}, nil)

	rotated := h.rotateKey("Acme")
	h.wants(manager, http.MethodGet, api+"/projects", nil, http.StatusUnauthorized, "unauthorized")
	h.must(rotated.ManagementKey, http.MethodGet, api+"/projects", nil, nil)
	if got := h.credentials(); rotated.CredentialsFile != "" || got[datafolder.ManagementKeyName] != neighbour {
		t.Errorf("the file follows another organization: %+v, %v", rotated, got)
	}
	for n := range 3 {
		if n == 2 { // a crash between the rotation and the file leaves an older key of the organization there
			stale := h.credentials()
			stale[datafolder.ManagementKeyName] = neighbour
			runtest.Must(t, datafolder.WriteCredentials(h.dir, stale))
		}
		rotated = h.rotateKey("Annals")
		if got := h.credentials(); got[datafolder.ManagementKeyName] != rotated.ManagementKey ||
			got[datafolder.ProjectKeyName] != neighbours {
			t.Errorf("the file holds %v, rotated %+v", got, rotated)
		}
	}
	h.must(rotated.ManagementKey, http.MethodGet, api+"/projects", nil, nil)
	h.nowhereInClear(manager, key, neighbour, neighbours, rotated.ManagementKey)
}

// nowhereInClear checks that no event and no row of any table holds the clear value of a key or a token.
func (h *harness) nowhereInClear(keys ...string) {
	h.t.Helper()
	for _, e := range h.events() {
		for _, key := range keys {
			if bytes.Contains(e.Data, []byte(key)) || bytes.Contains(e.Meta, []byte(key)) {
				h.t.Errorf("a key is in clear in %s of %s", e.Type, e.Stream)
			}
		}
	}
	rows, err := h.storage.db.Query(h.t.Context(), `select quote_ident(schemaname) || '.' || quote_ident(tablename)
		from pg_tables where schemaname not in ('pg_catalog', 'information_schema')`)
	runtest.Must(h.t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	runtest.Must(h.t, err)
	for _, table := range tables {
		for _, key := range keys {
			var n int
			err := h.storage.db.QueryRow(h.t.Context(), `select count(*) from `+table+` x where strpos(x::text, $1) > 0
				or strpos(x::text, encode($1::bytea, 'hex')) > 0`, key).Scan(&n)
			if err != nil || n > 0 {
				h.t.Errorf("%d rows of %s hold a key in clear, %v", n, table, err)
			}
		}
	}
	if len(tables) < 20 {
		h.t.Errorf("only %d tables were searched", len(tables))
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
	for method, path := range map[string]string{
		http.MethodGet: "/projects", http.MethodPost: "/projects",
		http.MethodPut: "/identities/ana?project=default",
	} {
		h.wants(key, method, api+path, point{}, http.StatusServiceUnavailable, "organization-not-ready")
	}
	h.must(h.credentials()[datafolder.ManagementKeyName], http.MethodGet, api+"/projects", nil, nil)

	h.stop()
	held.Store(false)
	h.start()
	h.must(key, http.MethodGet, api+"/projects", nil, nil)
	h.isPrepared(crashed)

	held.Store(true)
	late, another := h.crashedCreation("While it runs")
	h.wants(another, http.MethodGet, api+"/projects", nil, http.StatusServiceUnavailable, "organization-not-ready")
	held.Store(false)
	runtest.Await(h.t, "the organization is prepared", func() bool {
		status, _ := h.call(another, http.MethodGet, api+"/projects", nil)
		return status == http.StatusOK
	})
	h.isPrepared(late)
}

// crashedCreation writes only the first events of a creation, and returns the management key.
func (h *harness) crashedCreation(name string) (id uuid.UUID, clear string) {
	h.t.Helper()
	key, err := secret.NewManagementKey()
	runtest.Must(h.t, err)
	id, at := uuid.New(), h.cfg.now()
	log, ctx := h.journal, h.t.Context()
	service, call := h.people()
	owner, err := service.RegisterPerson(ctx, call, "ana@"+id.String()+".example")
	runtest.Must(h.t, err)
	facts, err := log.ReadFrom(ctx, stream.Registry, 0)
	runtest.Must(h.t, err)
	meta := event.NewMeta("operator", time.Now())
	_, err = log.Append(ctx, stream.Registry, eventstore.Revision(len(facts)-1), meta,
		registry.OrganizationCreated{
			OrganizationID: id, Name: name, Plan: metering.Flex,
			OwnerID: owner, WorkEmail: true, CreatedAt: at,
		})
	runtest.Must(h.t, err)
	meta.CommandID = uuid.New()
	done, err := log.Append(ctx, stream.Name(stream.Organization, id), eventstore.NoStream, meta,
		organization.ManagementKeySet{
			OrganizationID: id, KeyID: uuid.New(), Hash: key.Hash, Prefix: key.Prefix,
			Suffix: key.Suffix, SetAt: at,
		})
	runtest.Must(h.t, err)
	runtest.Must(h.t, h.read.waiter.Wait(ctx, done.Position, "access"))
	return id, key.Clear
}

func (h *harness) isPrepared(id uuid.UUID) {
	h.t.Helper()
	facts, err := h.journal.ReadFrom(h.t.Context(), stream.Name(stream.Organization, id), 0)
	runtest.Must(h.t, err)
	var state organization.State
	for _, f := range facts {
		state.Evolve(f.Event)
	}
	if !state.Prepared || len(state.Members) != 1 || state.Plan != metering.Flex || !state.Started ||
		len(state.KeyHashes) != 1 {
		h.t.Errorf("prepared as %+v", state)
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
	runtest.Must(t, err)
	h.reveals(drawn, first[datafolder.ProjectKeyName], key.Key)

	h.stop()
	fresh := bytes.Repeat([]byte{7}, datafolder.SecretBytes)
	h.set = func(s *Config) { s.Data.SealKey = base64.StdEncoding.EncodeToString(fresh) }
	h.start()
	h.reveals([][]byte{fresh}, first[datafolder.ProjectKeyName], key.Key)
	runtest.Must(t, os.Remove(filepath.Join(h.dir, datafolder.SealKeyFile))) // the former key can be given up
	h.must(first[datafolder.ManagementKeyName], http.MethodDelete, api+"/projects/default/keys/"+key.ID, nil, nil)
	status, revoked := h.call(key.Key, http.MethodGet, api+"/usage", nil)
	_, unknown := h.call(secret.ProjectKeyPrefix+strings.Repeat("0", 40), http.MethodGet, api+"/usage", nil)
	if status != http.StatusUnauthorized || !bytes.Equal(revoked, unknown) {
		t.Errorf("a revoked key is answered unlike an unknown one: %d %s, %s", status, revoked, unknown)
	}
	h.reveals([][]byte{fresh}, first[datafolder.ProjectKeyName])
	h.stop()
	h.start()
	h.reveals([][]byte{fresh}, first[datafolder.ProjectKeyName])
	h.rotatesKeys()
	h.completesCreations(&held)
}

// reveals checks that the vault reveals exactly these keys with the seal keys.
func (h *harness) reveals(seal [][]byte, want ...string) {
	h.t.Helper()
	sealer, err := secret.NewSealer(seal...)
	runtest.Must(h.t, err)
	vault := secret.Vault{DB: h.storage.db, Sealer: sealer}
	for _, clear := range want {
		var id uuid.UUID
		hash := secret.Hash(clear)
		runtest.Must(h.t, h.storage.db.QueryRow(h.t.Context(), `select id from access.keys where hash = $1`, hash[:]).Scan(&id))
		if got, ok, err := vault.Reveal(h.t.Context(), id); err != nil || !ok || got != clear {
			h.t.Errorf("revealed %q, %v, %v", got, ok, err)
		}
	}
	var rows int
	if err := h.storage.db.QueryRow(h.t.Context(), `select count(*) from ops.sealed_keys`).Scan(&rows); err != nil || rows != len(want) {
		h.t.Errorf("%d keys are kept, want %d, %v", rows, len(want), err)
	}
}
