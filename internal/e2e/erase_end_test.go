package e2e

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex/bleve/blevetest"
)

// repeatingModel is a chat endpoint that states every text as a claim. It holds back its answer
// about a text that asks for it.
type repeatingModel struct {
	t              *testing.T
	asked, release chan struct{}
}

func (m *repeatingModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct{ Messages []struct{ Content string } }
	var given struct{ Author, Text string }
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Messages) != 2 ||
		json.Unmarshal([]byte(request.Messages[1].Content), &given) != nil {
		m.t.Errorf("asked %+v, %v", request, err)
	}
	if strings.Contains(given.Text, "stall") {
		m.asked <- struct{}{}
		select {
		case <-m.release:
		case <-r.Context().Done():
			return
		}
	}
	memories, err := json.Marshal(map[string]any{"memories": []any{map[string]string{
		"kind": "claim", "content": given.Text, "excerpt": given.Text, "subject": given.Text, "attribute": "text",
	}}})
	if err != nil {
		m.t.Error(err)
	}
	answer, err := json.Marshal(map[string]any{
		"choices": []any{map[string]any{"finish_reason": "stop", "message": map[string]any{"content": string(memories)}}},
	})
	if err != nil {
		m.t.Error(err)
	}
	_, _ = w.Write(answer)
}

// holding are the tables, the statistics and the files of log and index that hold a word, or most
// of one.
func holding(t *testing.T, s *service, db *pgxpool.Pool, word string) (in []string) {
	t.Helper()
	tables := append(query[string](t, db, `select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_tables
		where schemaname not in ('pg_catalog', 'information_schema')`), "pg_stats", "pg_stats_ext")
	for _, table := range tables {
		var found bool
		sql := fmt.Sprintf(`select exists (select from %s r where strpos(lower(r::text), $1) > 0 or strpos(r::text, $2) > 0)`,
			table)
		runtest.Must(t, db.QueryRow(t.Context(), sql, word[:20], hex.EncodeToString([]byte(word[:20]))).Scan(&found))
		if found {
			in = append(in, table)
		}
	}
	for _, folder := range []string{"log", "recall"} {
		for _, file := range blevetest.Holding(t, filepath.Join(s.dir, folder), word[:20]) {
			in = append(in, folder+"/"+file)
		}
	}
	return in
}

func query[T any](t *testing.T, db *pgxpool.Pool, sql string) []T {
	t.Helper()
	rows, err := db.Query(t.Context(), sql)
	runtest.Must(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[T])
	runtest.Must(t, err)
	return list
}

// killWithinRebuild kills the service while it rebuilds a projection: the new rows are built, and
// cannot be put in place.
func (s *service) killWithinRebuild(db *pgxpool.Pool, name string) {
	s.t.Helper()
	tx, err := db.Begin(s.t.Context())
	runtest.Must(s.t, err)
	defer func() { _ = tx.Rollback(s.t.Context()) }()
	runtest.Must(s.t, errorOf(tx.Exec(s.t.Context(), "select from "+name+".checkpoint for update")))
	rebuild := exec.CommandContext(s.t.Context(), binary, "rebuild", name, "--data-dir", s.dir)
	runtest.Must(s.t, rebuild.Start())
	runtest.Await(s.t, "the rebuild has begun", func() bool {
		made := query[bool](s.t, db, `select to_regclass('`+name+`_next.checkpoint') is not null`)[0]
		return made && query[int64](s.t, db, "select position from "+name+"_next.checkpoint")[0] > 0
	})
	s.kill()
	if err := rebuild.Wait(); err == nil {
		s.t.Error("the rebuild of a killed process reported success")
	}
}

// Ten pairs of overlapping deletions, a stalled worker and a killed rebuild: "annals erase --now"
// ends, and no word of it is in a file of log and index, in a table or in the statistics of the
// database, nor could it be a key of an index.
func TestEraseNow_OverlapsAStalledWorkerAndAKilledRebuild(t *testing.T) {
	t.Parallel()
	m := &repeatingModel{t: t, asked: make(chan struct{}, 1), release: make(chan struct{})}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	address := pgtest.URL(t)
	db, err := pgxpool.New(t.Context(), address)
	runtest.Must(t, err)
	t.Cleanup(db.Close)
	s := newService(t, "ANNALS_POSTGRES="+address, "ANNALS_MODEL_URL="+server.URL+"/v1", "ANNALS_MODEL_NAME=small",
		"ANNALS_MODEL_KEY="+modelKey)
	s.start()
	c, key := s.client(), s.credentials()["ANNALS_PROJECT_KEY"]
	call := func(method, path string, body any, want ...int) {
		t.Helper()
		s.wants(key, method, path, body, want...)
	}
	var words []string
	fresh := func() string {
		words = append(words, runtest.Word())
		return words[len(words)-1]
	}
	send := func(id string) string {
		t.Helper()
		r, err := c.Ingest(t.Context(), client.DataPoint{
			ID: id, Content: "Ana met " + fresh(), Label: fresh(), Metadata: json.RawMessage(`{"tag":"` + fresh() + `"}`), Identity: "ana@" + words[0],
		})
		runtest.Must(t, err)
		return r.IngestionID
	}
	person := fresh()
	call("PUT", "/identities/ana@"+person, map[string]any{"traits": map[string]string{"city": fresh()}}, 200)
	aboutPerson := len(words)
	const pairs, each = 10, 4
	ids := make([][]string, pairs)
	var sends []string
	for pair := range ids {
		for n := range each {
			ids[pair] = append(ids[pair], fmt.Sprintf("%d of %s", n, fresh()))
			sends = append(sends, send(ids[pair][n]))
		}
	}
	for _, id := range sends {
		completed(t.Context(), t, c, id)
	}
	all := holding(t, s, db, words[2])
	if text := strings.Join(all, " "); !strings.Contains(text, "datapoints.") || !strings.Contains(text, "log/") {
		t.Fatalf("before the deletion a word is in %v", all)
	}
	runtest.Must(t, errorOf(db.Exec(t.Context(), "analyze")))
	s.killWithinRebuild(db, "datapoints")
	s.start() // within the lease of the rebuild
	send("stalled")
	stall, err := c.Ingest(t.Context(), client.DataPoint{ID: "stall", Content: "stall on " + fresh()})
	runtest.Must(t, err)
	<-m.asked
	var deletions sync.WaitGroup
	for _, pair := range ids {
		for _, some := range [][]string{pair[:each-1], pair[1:]} {
			deletions.Go(func() { call("POST", "/data-points/delete", map[string]any{"ids": some}, 202, 404) })
		}
	}
	deletions.Wait()
	for _, pair := range ids {
		for _, id := range pair {
			call("POST", "/data-points/delete", map[string]any{"ids": []string{id}}, 202, 404)
		}
	}
	call("DELETE", "/ingest/"+stall.IngestionID, nil, 204)
	call("POST", "/data-points/delete", map[string]any{"ids": []string{"stalled"}}, 202)
	call("DELETE", "/identities/ana@"+person, nil, 204)
	s.eraseNow()
	// What the worker derives now has no stream to go to.
	close(m.release)
	store(t, c, client.DataPoint{ID: "last", Content: "Bo met nobody"})
	s.eraseNow()
	runtest.Must(t, errorOf(db.Exec(t.Context(), "analyze")))
	for n, word := range words {
		in := holding(t, s, db, word)
		if n < aboutPerson {
			// Who called about a person, or as one, remains in the request log until its retention ends.
			in = slices.DeleteFunc(in, func(place string) bool { return strings.HasPrefix(place, "ops.request") })
		}
		if len(in) > 0 {
			t.Errorf("erased, and word %d is in %v", n, in)
		}
	}
	left := query[string](t, db, `select nspname::text from pg_namespace
		where nspname like '%\_next' or nspname like '%\_old\_%'`)
	if len(left) > 0 {
		t.Errorf("schemas %v are left of the rebuild", left)
	}
	wantNoStatistics(t, db)
	wantNoTextAsKeys(t, db)
}

// withoutText are the columns of text, bytes or JSON that hold no text of customers: names of ours,
// ids, hashes of random values.
var withoutText = []string{
	"*.checkpoint.holder", "*.checkpoint.name", "*.checkpoint.target",
	"*.follow_ups.cursor", "*.follow_ups.data", "*.follow_ups.kind",
	"access.projects.reads", "access.visit_months.stream", "access.members.role", "access.offers.role", "access.grants.access", "access.organizations.plan",
	"access.agents.scopes",
	"audit.bundles.positions", "audit.bundles.records", "audit.kept.leaf", "audit.pending.leaves", "audit.tiles.hashes",
	"audit.trees.checkpoint", "audit.trees.cosigned", "audit.trees.origin", "audit.trees.verifiers",
	"datapoints.blobs.stream", "datapoints.damaged_streams.damage", "datapoints.damaged_streams.stream",
	"datapoints.erasures.blobs",
	"datapoints.items.due", "datapoints.items.failure_code", "datapoints.items.outcome", "datapoints.items.phase",
	"datapoints.month_usage.month",
	"datapoints.sends.failure_code", "datapoints.sends.final_phase", "datapoints.sends.month", "datapoints.sends.phase",
	"datapoints.sends_without_items.failure_code", "datapoints.sends_without_items.final_phase",
	"directory.past_audiences.kind", "history.about.thing", "history.entries.former_stream", "history.entries.principal",
	"history.entries.stream", "history.entries.type", "history.names.thing", "history.settings.key", "history.settings.stream",
	"ops.audit_copies.note", "ops.audit_copies.origin", "ops.audit_copies.place", "ops.audit_keys.origin",
	"ops.audit_keys.seal_key", "ops.audit_keys.verifier", "ops.audit_signed.root", "ops.audit_turns.task",
	"ops.console_forms.token", "ops.console_shown.seal_key", "ops.visits.principal", "ops.visits.window_key",
	"reads.days.day", "reads.records.data_points", "reads.records.day", "reads.records.principal", "reads.records.way",
	"trace.revisions.derived_leaf", "trace.revisions.leaf",
	"directory.audiences.kind", "directory.identities.origin", "memories.memories.kind",
	"ops.charges.month", "ops.leases.holder", "ops.migrations.file",
	"ops.oauth_clients.id", "ops.oauth_codes.resource", "ops.oauth_codes.scopes", "ops.oauth_grants.scopes",
	"ops.oauth_tokens.narrowed", "ops.oauth_tokens.resource", "ops.oauth_tokens.scopes", "ops.oauth_tokens.successor_key",
	"ops.request_kinds.endpoint", "ops.request_kinds.error_code", "ops.request_kinds.key_name", "ops.request_kinds.key_prefix",
	"ops.request_payloads.plan", "ops.requests.plan",
	"ops.reservations.month", "ops.sealed_keys.seal_key", "ops.signing_keys.public", "ops.signing_keys.seal_key",
	"ops.webhook_leases.webhook_id",
	"usage.charges.month", "usage.flushes.month", "usage.grants.kind", "usage.grants.month", "usage.plans.month", "usage.plans.plan",
}

// partitionDay is the day in the name of a partition of the request log.
var partitionDay = regexp.MustCompile(`_\d{8}\.`)

// wantNoStatistics wants Postgres to keep no values of a column that may hold text, but for those
// that are listed to hold none.
func wantNoStatistics(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	columns := query[string](t, db, `select n.nspname || '.' || c.relname || '.' || a.attname || ' ' ||
			coalesce(a.attstattarget, -1)
		from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
			join pg_type y on y.oid = a.atttypid left join pg_type e on e.oid = y.typelem
		where c.relkind in ('r', 'p', 'm') and n.nspname !~ '^(pg_|information_schema)' and a.attnum > 0 and not a.attisdropped
			and `+textTypes+` order by 1`)
	if len(columns) < 40 {
		t.Fatalf("columns %v", columns)
	}
	for _, column := range columns {
		name, target, _ := strings.Cut(column, " ")
		name = partitionDay.ReplaceAllString(name, ".")
		_, inSchema, _ := strings.Cut(name, ".")
		if target != "0" && !slices.Contains(withoutText, name) && !slices.Contains(withoutText, "*."+inSchema) {
			t.Errorf("column %s keeps statistics: set them to 0, or list it if it never holds text of customers", name)
		}
	}
	more := query[string](t, db, `select indexrelid::regclass::text from pg_index join pg_class c on c.oid = indexrelid
		join pg_namespace n on n.oid = c.relnamespace where indexprs is not null and n.nspname !~ '^pg_'
		union all select stxname::text from pg_statistic_ext`)
	if len(more) > 0 {
		t.Errorf("%v keep statistics of expressions", more)
	}
}

// textTypes selects the columns a, with type y and its element type e, that may hold a text.
const textTypes = `(y.typcategory = 'S' or y.typname in ('bytea', 'json', 'jsonb', 'xml', 'hstore', 'tsvector')
	or e.typcategory = 'S' and y.typcategory = 'A' or e.typname in ('bytea', 'json', 'jsonb'))`

// keysWithoutText are the keys of indexes that hold no text of customers, with the reason.
var keysWithoutText = map[string]string{
	"*.checkpoint.name":                        "a projection",
	"*.follow_ups.kind":                        "a kind of ours",
	"access.claims.address":                    "a stream, named by a keyed hash of the address",
	"access.keys.hash":                         "a hash of a random key",
	"access.offers.address":                    "a stream, named by a keyed hash of the address",
	"access.organizations.management_key_hash": "a hash of a random key",
	"access.projects.slug":                     "a slug, which stays: projects are archived, never deleted",
	"access.visit_months.stream":               "a stream, named by ids",
	"history.about.thing":                      "a kind and an id",
	"history.entries.principal":                "a key, a person or an operator",
	"history.entries.stream":                   "a stream, named by ids",
	"history.entries.type":                     "a name of ours",
	"history.names.thing":                      "a kind and an id",
	"history.settings.key":                     "a setting and ids",
	"ops.audit_copies.place":                   "a place that the operator set",
	"ops.audit_turns.task":                     "a name of ours",
	"ops.console_forms.token":                  "a hash of a random token",
	"ops.visits.window_key":                    "a kind of ours",
	"reads.days.day":                           "a day",
	"reads.records.principal":                  "a key or a person",
	"access.webhooks.id":                       "random",
	"access.webhooks.token_hash":               "a hash of a random token",
	"datapoints.blobs.stream":                  "a stream, named by ids",
	"datapoints.damaged_streams.stream":        "a stream, named by ids",
	"datapoints.items.due":                     "a lane: live or bulk",
	"datapoints.month_usage.month":             "a month",
	"ops.agent_attempts.hash":                  "a hash of a random token",
	"ops.agent_refresh_tokens.hash":            "a hash of a random token",
	"ops.agent_registrations.claim_hash":       "a hash of a random token",
	"ops.agent_registrations.network":          "a keyed hash",
	"ops.charges.month":                        "a month",
	"ops.migrations.file":                      "a file of ours",
	"ops.oauth_clients.id":                     "random",
	"ops.oauth_clients.network":                "a keyed hash",
	"ops.oauth_codes.code":                     "a hash of a random code",
	"ops.oauth_grants.client_key":              "a hash",
	"ops.oauth_grants.redirect_key":            "a hash",
	"ops.oauth_tokens.access":                  "a hash of a random token",
	"ops.oauth_tokens.refresh":                 "a hash of a random token",
	"ops.person_erasures.identity_key":         "a hash",
	"ops.request_kinds.endpoint":               "a method and a route of ours",
	"ops.request_kinds.error_code":             "a code of ours",
	"ops.request_kinds.key_prefix":             "the beginning of a random key",
	"ops.request_kinds.name_key":               "a hash",
	"ops.sealed_keys.seal_key":                 "the name of a key of the operator",
	"ops.signin_accounts.account":              "a keyed hash",
	"ops.signin_browsers.token":                "a hash of a random token",
	"ops.signin_failures.who":                  "a keyed hash",
	"ops.signin_links.purpose":                 "a purpose of ours",
	"ops.signin_links.token":                   "a hash of a random token",
	"ops.signin_proofs.address":                "a keyed hash",
	"ops.signin_recovery_codes.code":           "a hash of a random code",
	"ops.signin_sessions.token":                "a hash of a random token",
	"ops.webhook_leases.webhook_id":            "random",
	"usage.charges.month":                      "a month",
	"usage.flushes.month":                      "a month",
}

// wantNoTextAsKeys wants no text of customers as the key of an index: a B-tree keeps keys of deleted rows as the bounds
// of its pages, however often it is vacuumed. So a hash stands for a text, which may be an included column.
func wantNoTextAsKeys(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	keys := query[string](t, db, `select distinct n.nspname || '.' || coalesce(c.relname || '.' || a.attname,
			i.indexrelid::regclass || ' (expression)')
		from pg_index i cross join unnest(i.indkey) with ordinality k (attribute, place)
			join pg_class c on c.oid = i.indrelid join pg_namespace n on n.oid = c.relnamespace
			left join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attribute and k.attribute <> 0
			left join pg_type y on y.oid = a.atttypid left join pg_type e on e.oid = y.typelem
		where n.nspname !~ '^(pg_|information_schema)' and k.place <= i.indnkeyatts and (a.attnum is null or `+textTypes+`)
		order by 1`)
	found := map[string]bool{}
	for _, key := range keys {
		key = partitionDay.ReplaceAllString(key, ".")
		_, inSchema, _ := strings.Cut(key, ".")
		if _, all := keysWithoutText["*."+inSchema]; all {
			key = "*." + inSchema
		}
		found[key] = true
		if keysWithoutText[key] == "" {
			t.Errorf("%s is a key of an index: use a hash of it, or list it with the reason if it holds no text of customers", key)
		}
	}
	for key := range keysWithoutText {
		if !found[key] {
			t.Errorf("%s is listed, and no index has it as a key", key)
		}
	}
}
