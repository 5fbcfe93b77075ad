package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

func TestMain(m *testing.M) { pgtest.Main(withShared{m}) }

// withShared runs the tests, and ends what they shared.
type withShared struct{ m *testing.M }

func (w withShared) Run() int {
	code := w.m.Run()
	return max(code, theLife.end())
}

// life is the testing.TB of what lives as long as all tests of the package.
type life struct {
	testing.TB // nothing else of it is called

	mu     sync.Mutex
	ends   []func()
	failed bool
}

// theLife is a variable since TestMain gives nothing to tests.
var theLife = &life{}

func (l *life) Helper()                  {}
func (l *life) Context() context.Context { return context.Background() }
func (l *life) Output() io.Writer        { return os.Stderr }
func (l *life) Failed() bool             { l.mu.Lock(); defer l.mu.Unlock(); return l.failed }
func (l *life) Error(args ...any)        { l.fail(fmt.Sprintln(args...)) }
func (l *life) Errorf(format string, args ...any) {
	l.fail(fmt.Sprintf(format, args...))
}
func (l *life) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (l *life) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (l *life) fail(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = true
	fmt.Fprintln(os.Stderr, "the shared service:", text)
}

func (l *life) Cleanup(end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, end)
}

// end ends what lives, the last first, and returns the exit code.
func (l *life) end() int {
	for _, end := range slices.Backward(l.ends) {
		end()
	}
	if l.Failed() {
		return 1
	}
	return 0
}

// theService is started by the first test that asks for it.
var theService = sync.OnceValue(func() *harness {
	return newLasting(func(cfg *Config) { cfg.RateLimit = new(0) })
})

// newLasting starts a service that ends after all tests.
func newLasting(set func(*Config)) *harness {
	dir, err := os.MkdirTemp("", "annals-server-")
	if err != nil {
		panic(err)
	}
	theLife.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			theLife.Error(err)
		}
	})
	h := &harness{t: theLife, dir: filepath.Join(dir, "data"), sends: map[string][]string{}}
	h.set = func(cfg *Config) {
		cfg.Proxies = httpx.Proxies{netip.MustParsePrefix("127.0.0.0/8")}
		set(cfg)
	}
	h.arrange = func(s *Server) {
		letPeopleIn(s)
		// All tests sign in from one network.
		s.signin.FailureTime, s.signin.AddressFailures = time.Nanosecond, 1<<20
	}
	h.start()
	return h
}

// place is the organization of a test that shares the service. Every name of the test ends in its mark.
type place struct {
	mark string
	id   uuid.UUID
	keys map[string]string
	// before is the position in the log at which the test began.
	before eventstore.Position
}

var places atomic.Int64

// newTenant is the service that tests share, in an organization of its own with a project that has a key. Such a test
// runs in parallel with others. It neither stops the service, nor changes its clock or settings, nor looks at what all
// organizations have together.
func newTenant(t *testing.T) *harness {
	t.Helper()
	s := theService()
	t.Parallel()
	mark := strconv.FormatInt(places.Add(1), 10)
	h := &harness{
		Server: s.Server, t: t, dir: s.dir, postgres: s.postgres, sends: map[string][]string{}, place: &place{mark: mark},
	}
	head, err := h.storage.store.Head(t.Context())
	runtest.Must(t, err)
	h.place.before = head
	call := engine.Call{
		Principal: auth.Principal{Kind: auth.ManagementKey}, RequestID: uuid.New(), ReceivedAt: h.cfg.now(),
	}
	made, err := h.write.service.CreateOrganization(t.Context(), call,
		tenancy.NewOrganization{Name: h.name("Annals"), Plan: metering.SelfHosted})
	runtest.Must(t, err)
	h.place.id, call.Principal.OrganizationID = made.ID, made.ID
	project, err := h.write.service.CreateProject(t.Context(), call, "default")
	runtest.Must(t, err)
	key, err := h.write.service.CreateKey(t.Context(), call, project.Slug, "default")
	runtest.Must(t, err)
	h.place.keys = map[string]string{
		datafolder.ProjectKeyName: key.Key, datafolder.ManagementKeyName: made.ManagementKey,
	}
	return h
}

// name is the name of an organization of the test: on the shared service, every test has others.
func (h *harness) name(organization string) string {
	if h.place == nil || organization == "" {
		return organization
	}
	return organization + " " + h.place.mark
}

// domain is a domain of which only people of the test have addresses.
func (h *harness) domain(name string) string {
	if h.place != nil {
		name += h.place.mark
	}
	return name + ".example"
}

// mail is the address of somebody of the organization of the test.
func (h *harness) mail(who string) string { return who + "@" + h.domain("acme") }

// network is the address from which the test calls what counts callers.
func (h *harness) network() string {
	if h.place == nil {
		return "127.0.0.1"
	}
	n, _ := strconv.Atoi(h.place.mark)
	return fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)
}

// home is the organization of the test.
func (h *harness) home() uuid.UUID {
	h.t.Helper()
	if h.place != nil {
		return h.place.id
	}
	return h.organizations()[0].ID
}

// projectID is the id of a project of the organization of the test.
func (h *harness) projectID(slug string) (id uuid.UUID) {
	h.t.Helper()
	runtest.Must(h.t, h.storage.db.QueryRow(h.t.Context(),
		"select id from access.projects where slug = $1 and organization_id = $2", slug, h.home()).Scan(&id))
	return id
}

// belongs reports whether an event is about an organization of the test, or about one of their projects.
func (h *harness) belongs() func(eventstore.Recorded) bool {
	h.t.Helper()
	rows, err := h.storage.db.Query(h.t.Context(), `with mine as (select id from access.organizations where name like '% ' || $1)
		select id::text from mine union all select id::text from access.projects where organization_id in (table mine)`,
		h.place.mark)
	runtest.Must(h.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	runtest.Must(h.t, err)
	return func(e eventstore.Recorded) bool {
		return slices.ContainsFunc(ids, func(id string) bool {
			return strings.Contains(e.Stream, id) || bytes.Contains(e.Data, []byte(id)) || bytes.Contains(e.Meta, []byte(id))
		})
	}
}
