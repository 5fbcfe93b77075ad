package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

// storesPage is the page for those who run the stores.
func storesPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/stores.md")
	runtest.Must(t, err)
	return string(page)
}

// storesScript returns a script of the page.
func storesScript(t *testing.T, name string) string {
	t.Helper()
	found := regexp.MustCompile("(?s)<!-- tested: " + name + " -->\n```sql\n(.*?)```").FindStringSubmatch(storesPage(t))
	if found == nil {
		t.Fatalf("docs/stores.md has no script %q", name)
	}
	return found[1]
}

var storesRoles atomic.Int64

// asAdmin connects a superuser to a database, until the end of the test.
func asAdmin(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	runtest.Must(t, err)
	t.Cleanup(func() { runtest.Must(t, conn.Close(context.WithoutCancel(t.Context()))) })
	return conn
}

// runScript runs statements one by one, since some run in no transaction.
func runScript(t *testing.T, conn *pgx.Conn, script string) {
	t.Helper()
	for statement := range strings.SplitSeq(script, ";\n") {
		if _, err := conn.Exec(context.WithoutCancel(t.Context()), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// withUser returns an address with another user and database.
func withUser(t *testing.T, address, user, database string) string {
	t.Helper()
	cfg, err := pgconn.ParseConfig(address)
	runtest.Must(t, err)
	return fmt.Sprintf("host='%s' port=%d user=%s password=PASSWORD dbname=%s sslmode=disable", cfg.Host, cfg.Port, user,
		database)
}

// sendsAndErases sends, recalls, deletes and erases.
func (h *harness) sendsAndErases() {
	h.t.Helper()
	key, _ := h.keys()
	h.sendTeaAndRecall()
	h.must(key, http.MethodDelete, api+"/data-points/a", nil, nil)
	done, err := h.background.finisher.EraseNow(h.t.Context())
	if err != nil || done.Tables == 0 || done.Left.Deletions > 0 {
		h.t.Errorf("erase: %+v, %v", done, err)
	}
}

// serveAndErase starts a service, uses it, and builds its tables again.
func (h *harness) serveAndErase() {
	h.t.Helper()
	h.start()
	h.sendsAndErases()
	h.awaitApplied() // erased events are not there for a projection that has not applied them
	h.stop()
	h.rebuildsOffline()
}

// The script for a database of its own makes a role with which the service does all that it does.
func TestStoresPage_OwnDatabase(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	address := pgtest.URL(t)
	admin := asAdmin(t, address)
	name := fmt.Sprintf("annals_own_%d_%d", os.Getpid(), storesRoles.Add(1))
	t.Cleanup(func() {
		runScript(t, admin, "drop database if exists "+name+" with (force);\ndrop role if exists "+name)
	})
	runScript(t, admin, regexp.MustCompile(`\bannals\b`).ReplaceAllString(storesScript(t, "own database"), name))
	h.postgres = withUser(t, address, name, name)
	h.serveAndErase()
}

// The script for a database of others gives nothing of theirs: the role reads none of their tables, and they keep what
// they hold.
func TestStoresPage_SharedDatabase(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	address := emptyDatabase(t)
	admin := asAdmin(t, address)
	name := fmt.Sprintf("annals_shared_%d_%d", os.Getpid(), storesRoles.Add(1))
	var database string
	runtest.Must(t, admin.QueryRow(t.Context(), `select current_database()`).Scan(&database))
	t.Cleanup(func() { runScript(t, admin, "drop owned by "+name+" cascade;\ndrop role "+name) })
	runScript(t, admin, "create schema crm;\ncreate table crm.customers (name text);\ninsert into crm.customers values ('Ana')")
	script := regexp.MustCompile(`\bannals\b`).ReplaceAllString(storesScript(t, "shared database"), name)
	runScript(t, admin, regexp.MustCompile(`\bapp\b`).ReplaceAllString(script, database))
	h.postgres = withUser(t, address, name, database)
	h.serveAndErase()
	var n int
	if err := admin.QueryRow(t.Context(), `select count(*) from crm.customers`).Scan(&n); err != nil || n != 1 {
		t.Errorf("the other application has %d customers: %v", n, err)
	}
	role, err := pgx.Connect(t.Context(), h.postgres)
	runtest.Must(t, err)
	defer func() { runtest.Must(t, role.Close(context.WithoutCancel(t.Context()))) }()
	_, err = role.Exec(t.Context(), `select * from crm.customers`)
	if refused, is := errors.AsType[*pgconn.PgError](err); !is || refused.Code != missingRight {
		t.Errorf("the role reads the other application: %v", err)
	}
}

// emptyDatabase is a database of its own, without the schema ops that others of the tests have.
func emptyDatabase(t *testing.T) (address string) {
	t.Helper()
	at := pgtest.URL(t)
	admin := asAdmin(t, at)
	name := fmt.Sprintf("annals_empty_%d_%d", os.Getpid(), storesRoles.Add(1))
	runScript(t, admin, "create database "+name+" template template0")
	t.Cleanup(func() { runScript(t, admin, "drop database "+name+" with (force)") })
	cfg, err := pgconn.ParseConfig(at)
	runtest.Must(t, err)
	return fmt.Sprintf("host='%s' port=%d user=%s dbname=%s sslmode=disable", cfg.Host, cfg.Port, cfg.User, name)
}

// The numbers of the page are those of the program.
func TestStoresPage_Numbers(t *testing.T) {
	t.Parallel()
	page := storesPage(t)
	most := callConnections + workConnections + checkConnections
	for _, want := range []string{
		fmt.Sprintf("`write`, `read` and `console` | %d |", callConnections),
		fmt.Sprintf("`projector` and `pipeline` | %d |", workConnections),
		fmt.Sprintf("min(%d, pool_max_conns) + 8 × 4", most),
		fmt.Sprintf("%d for\none process, %d for two", most+8*4, 2*most+8*4),
		fmt.Sprintf("%d is the least", leastConnections),
		"--max-append-size` is at least " + humanize.Comma(eventstore.MaxAppend) + " bytes",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("docs/stores.md lacks %q", want)
		}
	}
}
