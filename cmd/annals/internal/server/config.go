package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/commands/pipeline/model"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/recallindex/elastic"
)

// Embedded is the value of Config.EventStore and Config.Postgres that selects the embedded part.
const Embedded = "embedded"

// Config is the configuration of a service. All fields are required unless they say otherwise.
type Config struct {
	Data datafolder.Folder
	// InForce are the settings that differ from the defaults, by their variables, for the operator to read: secrets are
	// masked.
	InForce map[string]string
	// Roles are those of this process; none are all.
	Roles Roles
	// APIAddr and ConsoleAddr are the addresses to listen on. OpsAddr may be empty: then the API's
	// address serves the operation routes.
	APIAddr, ConsoleAddr, OpsAddr string
	// Profile serves the profiler of Go at OpsAddr, which is then required.
	Profile bool
	// RequireReason refuses calls of operators without a reason that show texts or secrets.
	RequireReason bool
	// URLs are the public addresses. An empty one is derived from the address that is listened on.
	URLs auth.URLs
	// Proxies are those in front of the service that are trusted to name who calls them.
	Proxies httpx.Proxies
	// MCPOrigins are the origins of pages that may call /mcp besides those of the console, separated by commas.
	MCPOrigins string
	// Instance distinguishes this deployment from others in the console. It may be zero.
	Instance web.Instance
	// EventStore and Postgres are Embedded or an address.
	EventStore, Postgres string
	// SchemaPrefix begins the names of the schemas in the database; it may be empty.
	SchemaPrefix string
	// PostgresReplica is the address of streaming replicas of a Postgres that is not embedded; "" for
	// none. Only a process that serves reads uses it.
	PostgresReplica string
	// Index is the Elasticsearch with the recall index, which all processes share. Nil is an embedded
	// index, which belongs to this process.
	Index *elastic.Options
	// Derive is true if this process derives memory from what was sent.
	Derive bool
	// Model extracts memory; without a URL the built-in extractor does.
	Model model.Endpoint
	// Embeddings makes vectors for semantic search, with the least cosine of what it finds (0 to 1, 0 for none). Without a
	// URL the built-in model does, if Builtin allows it and it is installed; otherwise search is lexical.
	Embeddings      model.Endpoint
	EmbeddingsLeast float64
	Builtin         Builtin
	// BuiltinFile is the jar of the built-in model, or a folder with its files, to use without installing it. "" is the
	// installed one.
	BuiltinFile string
	// NoRecallFloor lets recall return also what has little in common with the query.
	NoRecallFloor bool
	// TLSCert and TLSKey name the PEM files with which every address speaks HTTPS. Both may be empty.
	TLSCert, TLSKey string
	// StopDelay is how long a stop waits while /readyz answers 503 and calls are served, so that what sends the calls
	// notices it.
	StopDelay time.Duration
	// MinFreeDisk is how many bytes of the data folder's disk must be free for writes. 0 checks no
	// disk.
	MinFreeDisk uint64
	// BulkItems and BulkBytes bound what waits to be derived in batches; 0 means DefaultBulkItems and
	// DefaultBulkBytes.
	BulkItems int
	BulkBytes int64
	// RateLimit is how many requests an organization may send in any 60 seconds, whatever its plan. 0
	// is no limit, nil the limit of the plan.
	RateLimit *int
	PlanTerms metering.PlanTerms
	// MemberLimits bound the members and the offers of each organization; the zero value is organization.DefaultLimits.
	MemberLimits organization.Limits
	// NoRequestLog logs no calls. Only benchmarks set it, to measure what the log costs.
	NoRequestLog bool
	SignIn       SignIn
	Audit        AuditConfig
	Logger       *slog.Logger
	// Clock may be nil for the clock of the machine.
	Clock func() time.Time
	// Ready is called once, when the service accepts requests. It may be nil.
	Ready func(auth.URLs)
	// parts are more parts of the service; only tests have some.
	parts []part
	// openEncoder opens the built-in model of a path. Nil is that of minilm; only tests set another.
	openEncoder func(dir string) (model.Encoder, error)
	// wrapStore returns the event store to use for the one that was opened. Nil uses that; only tests set it.
	wrapStore func(logStore) logStore
}

// publicURLs completes the public addresses from the addresses that are listened on, which name the
// port if the configuration asks for port 0.
func (c Config) publicURLs(apiAddr, consoleAddr string) auth.URLs {
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	u := auth.URLs{API: or(c.URLs.API, urlOf(scheme, apiAddr)), Console: or(c.URLs.Console, urlOf(scheme, consoleAddr))}
	u.Auth = or(c.URLs.Auth, u.Console)
	return u
}

// EqualAddresses returns an address that is there twice, "" if there is none. Port 0 is another port each time.
func EqualAddresses(addresses ...string) string {
	for i, addr := range addresses {
		if !strings.HasSuffix(addr, ":0") && addr != "" && slices.Contains(addresses[i+1:], addr) {
			return addr
		}
	}
	return ""
}

func or(value, otherwise string) string {
	if value != "" {
		return strings.TrimRight(value, "/")
	}
	return otherwise
}

// urlOf makes a URL that this machine can call from an address that it listens on.
func urlOf(scheme, addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return scheme + "://" + addr
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// now returns the time of the service, in UTC at microsecond precision. Durations, as of a lease,
// are measured with the clock of the machine instead.
func (c Config) now() time.Time { return instantOf(c.Clock) }

// instantOf reads a clock at the precision of the log.
func instantOf(clock func() time.Time) time.Time { return clock().UTC().Truncate(time.Microsecond) }

// Role is a share of the service that a process takes.
type Role string

// The roles, as setting ANNALS_ROLES names them.
const (
	RoleWrite     Role = "write"
	RoleRead      Role = "read"
	RoleProjector Role = "projector"
	RolePipeline  Role = "pipeline"
	RoleConsole   Role = "console"
)

// AllRoles returns every role: those of a process that is the whole service.
func AllRoles() Roles {
	return Roles{RoleWrite, RoleRead, RoleProjector, RolePipeline, RoleConsole}
}

// Roles are the roles of one process. None are all.
type Roles []Role

// ParseRoles reads roles that are separated by commas. An empty text means all.
func ParseRoles(text string) (Roles, error) {
	if text == "" {
		return AllRoles(), nil
	}
	var roles Roles
	for _, name := range strings.Split(text, ",") {
		role := Role(strings.TrimSpace(name))
		if !slices.Contains(AllRoles(), role) {
			return nil, fmt.Errorf("names the role %q: want some of %s, separated by commas", role, AllRoles())
		}
		if !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	return roles, nil
}

// String lists the roles as ParseRoles reads them.
func (r Roles) String() string {
	names := make([]string, len(r))
	for i, role := range r {
		names[i] = string(role)
	}
	return strings.Join(names, ",")
}

// Has reports whether the process has a role.
func (r Roles) Has(role Role) bool { return len(r) == 0 || slices.Contains(r, role) }

// HasAny reports whether the process has one of some roles. No roles are all.
func (r Roles) HasAny(roles Roles) bool { return len(roles) == 0 || slices.ContainsFunc(roles, r.Has) }

// CheckEmbedded returns why the roles cannot be those of one process of several, if a part of it is
// embedded and so serves this process alone. setting is the setting of that part.
func (r Roles) CheckEmbedded(eventStore, postgres, index string) (setting string, err error) {
	missing := slices.DeleteFunc(AllRoles(), r.Has)
	if len(missing) == 0 {
		return "", nil
	}
	for _, part := range []struct{ setting, value string }{{"EVENTSTORE", eventStore}, {"POSTGRES", postgres}} {
		if part.value == Embedded {
			return part.setting, fmt.Errorf("is embedded, so no other process can have the roles %s: set it to the "+
				"address of a server, or leave ANNALS_ROLES unset", missing)
		}
	}
	// The process that feeds an embedded index also answers recall and erases. The console calls recall.
	if index == Embedded && r.Has(RoleConsole) && !r.Has(RoleRead) {
		return "INDEX", errors.New("is embedded, so a process with the role console also has the role read: set it to the " +
			"address of an Elasticsearch, or add read to ANNALS_ROLES")
	}
	if index == Embedded && r.HasAny(rolesOfIndex) && missing.HasAny(rolesOfIndex) {
		return "INDEX", fmt.Errorf("is embedded, so one process has the roles %s: set it to the address of an "+
			"Elasticsearch, or give the process of ANNALS_ROLES=%s all three", rolesOfIndex, r)
	}
	return "", nil
}

// The roles that need the recall index, and a model that embeds.
var (
	rolesOfIndex  = Roles{RoleRead, RoleProjector, RolePipeline}
	rolesOfModels = Roles{RoleRead, RolePipeline, RoleConsole}
	// openIndexRoles are those whose processes open the index: to be asked at least.
	openIndexRoles = append(slices.Clone(rolesOfIndex), RoleConsole)
)
