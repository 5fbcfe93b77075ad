package e2e

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg/pgtest"
)

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

// A B-tree keeps keys of deleted rows as the bounds of its pages, however often it is vacuumed. So no key is a text of
// customers: a hash stands for it, and the text may be an included column.
func TestIndexes_HaveNoTextOfCustomersAsKeys(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	db, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	newService(t, "ANNALS_POSTGRES="+address).start()
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
