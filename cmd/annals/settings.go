package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/grammar"
	"github.com/annals-project/annals/cmd/annals/internal/logging"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/commands/audit"
	"github.com/annals-project/annals/commands/pipeline/model"
	"github.com/annals-project/annals/console/mcp"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/projections/recallindex/elastic"
)

// Settings are the settings of "serve". Each is a flag and an environment variable. The flag wins.
type Settings struct {
	DataDir     string `name:"data-dir" setting:"ANNALS_DATA_DIR" group:"Where the data is" default:"./data" help:"Folder that holds all data of the service."`
	APIAddr     string `name:"api-addr" setting:"ANNALS_API_ADDR" group:"Addresses" default:"127.0.0.1:8080" help:"Address that the API listens on."`
	ConsoleAddr string `name:"console-addr" setting:"ANNALS_CONSOLE_ADDR" group:"Addresses" default:"127.0.0.1:8081" help:"Address that the console listens on."`
	OpsAddr     string `name:"ops-addr" setting:"ANNALS_OPS_ADDR" group:"Addresses" help:"Address that /readyz and /metrics listen on, with the causes of what is not ready; default: that of the API, without causes."`
	Profile     string `name:"profile" setting:"ANNALS_PROFILE" group:"Log and profiles" default:"off" help:"Whether the profiler of Go is at /debug/pprof/ of ANNALS_OPS_ADDR, which it needs."`
	APIURL      string `name:"api-url" setting:"ANNALS_API_URL" group:"Addresses" help:"Public address of the API; default from the address it listens on."`
	ConsoleURL  string `name:"console-url" setting:"ANNALS_CONSOLE_URL" group:"Addresses" help:"Public address of the console; default from the address it listens on."`
	AuthURL     string `name:"auth-url" setting:"ANNALS_AUTH_URL" group:"Addresses" help:"Public address of the authorization server; default the console's."`
	Instance    string `name:"instance-name" setting:"ANNALS_INSTANCE_NAME" group:"Addresses" help:"Name of this deployment, such as staging, which every page of the console shows."`
	Colour      string `name:"instance-colour" setting:"ANNALS_INSTANCE_COLOUR" group:"Addresses" help:"Colour under that name: red, amber, green or blue; default: none."`
	MCPOrigins  string `name:"mcp-origins" setting:"ANNALS_MCP_ORIGINS" group:"Addresses" help:"Origins of other pages that may call /mcp, such as https://inspector.example.com, separated by commas; default: none."`
	Proxies     string `name:"trusted-proxies" setting:"ANNALS_TRUSTED_PROXIES" group:"Addresses" help:"Networks of the proxies in front, such as 10.0.0.0/8, separated by commas: from these alone the last entry of X-Forwarded-For is the caller; default: none."`
	EventStore  string `name:"eventstore" setting:"ANNALS_EVENTSTORE" group:"Where the data is" default:"embedded" help:"Event store: embedded, or a server such as esdb://host:2113, or the cluster of some hosts: esdb+discover://user:password@host1:2113,host2:2113?tlsCAFile=ca.pem; better set in the environment than as a flag."`
	Postgres    string `name:"postgres" setting:"ANNALS_POSTGRES" group:"Where the data is" default:"embedded" help:"Database: embedded, or postgres://user@host/database."`
	Prefix      string `name:"postgres-schema-prefix" setting:"ANNALS_POSTGRES_SCHEMA_PREFIX" group:"Where the data is" help:"Start of the names of all schemas in the database, such as acme_, so that several services or other applications can share it; default: none."`
	Replica     string `name:"postgres-replica" setting:"ANNALS_POSTGRES_REPLICA" group:"Where the data is" help:"Streaming replicas of the database, to which reads go that they can answer as it would: postgres://user@host1,host2/database; better set in the environment than as a flag."`
	Index       string `name:"index" setting:"ANNALS_INDEX" group:"Where the data is" default:"embedded" help:"Recall index: embedded, or https://host:9200 of an Elasticsearch 8, which all processes share, several separated by commas."`
	IndexUser   string `name:"index-user" setting:"ANNALS_INDEX_USER" group:"Where the data is" help:"User of the Elasticsearch, unless its address holds one."`
	IndexPass   string `name:"index-password" setting:"ANNALS_INDEX_PASSWORD" group:"Where the data is" help:"Password of the user; better set in the environment than as a flag."`
	IndexKey    string `name:"index-key" setting:"ANNALS_INDEX_KEY" group:"Where the data is" help:"API key of the Elasticsearch in its encoded form, instead of a user; better set in the environment than as a flag."`
	IndexCA     string `name:"index-ca" setting:"ANNALS_INDEX_CA" group:"Where the data is" help:"File with the certificates to trust for the Elasticsearch (PEM); default: those of the system."`
	IndexName   string `name:"index-name" setting:"ANNALS_INDEX_NAME" group:"Where the data is" default:"annals" help:"Beginning of the names of the indexes; services that share an Elasticsearch need different ones."`
	Roles       string `name:"roles" aliases:"role" setting:"ANNALS_ROLES" group:"What the process does" default:"write,read,projector,pipeline,console" help:"What this process does, separated by commas: write, read, projector, pipeline, console. Less than all needs an event store, a database and an index outside the process."`
	Pipeline    string `name:"pipeline" setting:"ANNALS_PIPELINE" group:"What the process does" default:"on" help:"Derive memory from what was sent: on or off."`
	ModelURL    string `name:"model-url" setting:"ANNALS_MODEL_URL" group:"What the process does" help:"Base address of an OpenAI-compatible endpoint that extracts memory, such as https://models.example.com/v1; default: the built-in extractor."`
	ModelName   string `name:"model-name" setting:"ANNALS_MODEL_NAME" group:"What the process does" help:"Model at the endpoint."`
	ModelKey    string `name:"model-key" setting:"ANNALS_MODEL_KEY" group:"What the process does" help:"Key of the endpoint, if it needs one; better set in the environment than as a flag."`
	Embeddings  string `name:"embeddings" setting:"ANNALS_EMBEDDINGS" group:"Recall" default:"auto" help:"Semantic search without an endpoint: auto, by the built-in model if annals embeddings install has installed it, else recall searches by words alone; none; or builtin, which warns if the model is not installed."`
	EmbedModel  string `name:"embeddings-model" setting:"ANNALS_EMBEDDINGS_MODEL" group:"Recall" placeholder:"FILE" help:"The jar of the built-in model, or a folder with its files: used from there without annals embeddings install, as where the data folder does not last."`
	Floor       string `name:"recall-floor" setting:"ANNALS_RECALL_FLOOR" group:"Recall" default:"on" help:"Whether recall leaves out what has little in common with the query."`
	EmbedURL    string `name:"embeddings-url" setting:"ANNALS_EMBEDDINGS_URL" group:"Recall" help:"Base address of an OpenAI-compatible endpoint for embeddings, which then takes the place of the built-in model."`
	EmbedName   string `name:"embeddings-name" setting:"ANNALS_EMBEDDINGS_NAME" group:"Recall" help:"Model of the embeddings; a new model embeds everything again."`
	EmbedKey    string `name:"embeddings-key" setting:"ANNALS_EMBEDDINGS_KEY" group:"Recall" help:"Key of that endpoint, if it needs one; better set in the environment than as a flag."`
	EmbedLeast  string `name:"embeddings-least" setting:"ANNALS_EMBEDDINGS_LEAST" group:"Recall" help:"Cosine from 0 to 1 below which the model of that endpoint finds nothing; default: no limit. The built-in model has its own."`
	HashKey     string `name:"hash-key" setting:"ANNALS_HASH_KEY" group:"Keys of the service" help:"Key of the hashes of customer text, 32 bytes as base64 or hex, never changed; default: generated once in the data folder."`
	SealKey     string `name:"seal-key" setting:"ANNALS_SEAL_KEY" group:"Keys of the service" help:"Keys that seal API keys, so that they can be revealed, each 32 bytes as base64 or hex, separated by commas: the first seals, all open; better set in the environment than as a flag; default: generated once in the data folder."`
	TLSCert     string `name:"tls-cert" setting:"ANNALS_TLS_CERT" group:"Addresses" help:"Certificate file (PEM); with a key the API speaks HTTPS."`
	TLSKey      string `name:"tls-key" setting:"ANNALS_TLS_KEY" group:"Addresses" help:"Private key file (PEM) of the certificate."`
	MinFreeDisk int    `name:"min-free-disk" setting:"ANNALS_MIN_FREE_DISK" group:"Limits" default:"1024" help:"MiB of the data folder's disk that must be free, or writes are refused; 0 checks no disk."`
	BulkItems   int    `name:"bulk-backlog-items" setting:"ANNALS_BULK_BACKLOG_ITEMS" group:"Limits" default:"1000000" help:"Items in batches that may wait to be derived; further batches wait, then are refused."`
	BulkMiB     int    `name:"bulk-backlog-mib" setting:"ANNALS_BULK_BACKLOG_MIB" group:"Limits" default:"4096" help:"MiB of their texts that may wait."`
	RateLimit   *int   `name:"rate-limit-per-minute" setting:"ANNALS_RATE_LIMIT_PER_MINUTE" group:"Limits" help:"Requests that an organization may send in any 60 seconds, whatever its plan; 0 is no limit; default: the limit of its plan."`
	Retention   *int   `name:"payload-retention-days" setting:"ANNALS_PAYLOAD_RETENTION_DAYS" group:"Limits" help:"Days that the request log keeps the bodies of calls of organizations without a plan, 0 to 365; 0 never stores them; default: 14."`
	Plans       string `name:"plans" setting:"ANNALS_PLANS" group:"Limits" help:"Terms of plans that differ from the default, as JSON by plan."`
	LogFormat   string `name:"log-format" setting:"ANNALS_LOG_FORMAT" group:"Log and profiles" default:"auto" help:"Form of the log: auto, which is text at a terminal and JSON elsewhere; text; or json."`
	StopDelay   int    `name:"stop-delay-seconds" setting:"ANNALS_STOP_DELAY_SECONDS" group:"Addresses" default:"0" help:"Seconds before a stop in which /readyz answers 503 and calls are still served, so that proxies notice it, 0 to 300."`
	PeopleSettings
	AuditSettings
	LogLevel string `name:"log-level" setting:"ANNALS_LOG_LEVEL" group:"Log and profiles" default:"info" help:"Least level that is logged: debug, info, warn or error."`
}

// Check returns an error for every setting that cannot work, with what to set instead. It does
// not repeat values that may hold a password.
func (s *Settings) Check() error {
	var errs []error
	bad := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("ANNALS_%s %s", name, fmt.Sprintf(format, args...)))
	}
	if strings.TrimSpace(s.DataDir) == "" {
		bad("DATA_DIR", "is empty: name a folder, such as ./data")
	}
	type setting struct{ name, value string }
	for _, a := range []setting{{"API_ADDR", s.APIAddr}, {"CONSOLE_ADDR", s.ConsoleAddr}, {"OPS_ADDR", s.OpsAddr}} {
		if a.name == "OPS_ADDR" && a.value == "" {
			continue
		}
		if !isAddr(a.value) {
			bad(a.name, "is %q: want host:port, such as 127.0.0.1:8080", a.value)
		}
	}
	if equal := server.EqualAddresses(s.APIAddr, s.ConsoleAddr, s.OpsAddr); equal != "" {
		bad("API_ADDR", "and ANNALS_CONSOLE_ADDR, ANNALS_OPS_ADDR must differ: two of them are %s", equal)
	}
	if s.Profile == "on" && s.OpsAddr == "" {
		bad("PROFILE", "is on: it needs ANNALS_OPS_ADDR, the only address that serves profiles")
	}
	for _, u := range []setting{{"API_URL", s.APIURL}, {"CONSOLE_URL", s.ConsoleURL}, {"AUTH_URL", s.AuthURL}} {
		if u.value != "" && !isBaseURL(u.value) {
			bad(u.name, "is %q: want an address such as https://memory.example.com, without a query", u.value)
		} else if u.name != "API_URL" && hasPath(u.value) {
			bad(u.name, "is %q: want an address without a path, such as https://console.example.com", u.value)
		}
	}
	if setting, err := s.instance().Check(); err != nil {
		bad("INSTANCE_"+setting, "%v", err)
	}
	s.checkCallers(bad)
	if s.EventStore != server.Embedded {
		if err := server.CheckEventStore(s.EventStore); err != nil {
			bad("EVENTSTORE", `%v; want "embedded", or an address such as esdb+discover://user:password@host1:2113,host2:2113`, err)
		}
	}
	s.validateDatabase(bad)
	s.validateIndex(bad)
	s.validateRoles(bad)
	s.validateAmounts(bad)
	s.validateSwitches(bad)
	if _, err := s.planTerms(); err != nil {
		bad("PLANS", "%v", err)
	}
	if _, err := s.Level(); err != nil {
		bad("LOG_LEVEL", "is %q: want debug, info, warn or error", s.LogLevel)
	}
	if _, err := logging.Parse(s.LogFormat); err != nil {
		bad("LOG_FORMAT", "%v", err)
	}
	if _, err := datafolder.DecodeSecret(s.HashKey); err != nil {
		bad("HASH_KEY", "%v", err)
	}
	if _, err := datafolder.DecodeSecrets(s.SealKey); err != nil {
		bad("SEAL_KEY", "%v", err)
	}
	s.validateTLS(bad)
	if _, err := os.Stat(s.EmbedModel); s.EmbedModel != "" && err != nil {
		bad("EMBEDDINGS_MODEL", "names a file that cannot be read: %v", err)
	}
	if s.EmbedModel != "" && s.Embeddings == "none" {
		bad("EMBEDDINGS_MODEL", "is set, but ANNALS_EMBEDDINGS is none: remove one of them")
	}
	s.validatePeople(bad)
	s.validateAudit(bad)
	validateModel("MODEL", s.model(), bad)
	validateModel("EMBEDDINGS", s.embeddings(), bad)
	if _, _, setting, err := s.embeddingModels(); err != nil {
		bad(setting, "%v", err)
	}
	return errors.Join(errs...)
}

func (s *Settings) validateRoles(bad func(name, format string, args ...any)) {
	roles, err := server.ParseRoles(s.Roles)
	if err != nil {
		bad("ROLES", "%v", err)
		return
	}
	if setting, err := roles.CheckEmbedded(s.EventStore, s.Postgres, s.Index); err != nil {
		bad(setting, "%v", err)
	}
}

// checkCallers reports wrong proxies and origins.
func (s *Settings) checkCallers(bad func(name, format string, args ...any)) {
	if _, err := httpx.ParseProxies(s.Proxies); err != nil {
		bad("TRUSTED_PROXIES", "%v", err)
	}
	if _, err := mcp.ParseOrigins(s.MCPOrigins); err != nil {
		bad("MCP_ORIGINS", "%v", err)
	}
}

// validateIndex does not repeat the address, which may hold a password.
func (s *Settings) validateIndex(bad func(name, format string, args ...any)) {
	if o := s.elastic(); o != nil {
		switch field, err := o.Validate(); {
		case err == nil:
		case field == "URL":
			bad("INDEX", `cannot be used: %v; want "embedded", or an address such as https://user:password@host:9200`, err)
		default:
			bad("INDEX_"+strings.ToUpper(field), "cannot be used: %v", err)
		}
		return
	}
	for _, o := range []struct{ name, value string }{
		{"INDEX_USER", s.IndexUser}, {"INDEX_PASSWORD", s.IndexPass}, {"INDEX_KEY", s.IndexKey}, {"INDEX_CA", s.IndexCA},
	} {
		if o.value != "" {
			bad(o.name, "is set, but ANNALS_INDEX is embedded: set that to the address of the Elasticsearch")
		}
	}
}

// elastic returns the Elasticsearch of the recall index, nil for an embedded index.
func (s *Settings) elastic() *elastic.Options {
	if s.Index == server.Embedded {
		return nil
	}
	return &elastic.Options{
		URL: s.Index, User: s.IndexUser, Password: s.IndexPass, Key: s.IndexKey, CA: s.IndexCA, Name: s.IndexName,
	}
}

func (s *Settings) validateTLS(bad func(name, format string, args ...any)) {
	switch {
	case s.TLSCert != "" && s.TLSKey == "":
		bad("TLS_KEY", "is not set, but ANNALS_TLS_CERT is: HTTPS needs both")
	case s.TLSCert == "" && s.TLSKey != "":
		bad("TLS_CERT", "is not set, but ANNALS_TLS_KEY is: HTTPS needs both")
	}
	for _, f := range []struct{ name, path string }{{"TLS_CERT", s.TLSCert}, {"TLS_KEY", s.TLSKey}} {
		if f.path == "" {
			continue
		}
		if _, err := os.Stat(f.path); err != nil {
			bad(f.name, "names a file that cannot be read: %v", err)
			return
		}
	}
	if s.TLSCert != "" && s.TLSKey != "" {
		if _, err := tls.LoadX509KeyPair(s.TLSCert, s.TLSKey); err != nil {
			bad("TLS_CERT", "and ANNALS_TLS_KEY cannot be used: %v", err)
		}
	}
}

// Level returns the lowest level that is logged.
func (s *Settings) Level() (slog.Level, error) {
	switch s.LogLevel {
	case "debug", "info", "warn", "error":
		var level slog.Level
		err := level.UnmarshalText([]byte(s.LogLevel))
		return level, err
	default:
		return 0, fmt.Errorf("unknown log level %q", s.LogLevel)
	}
}

// logger makes the logger of a command with these settings, which must be valid.
func (s *Settings) logger(env *Env) (*slog.Logger, error) {
	level, err := s.Level()
	return logging.New(env.Stderr, logging.Format(s.LogFormat), level), err
}

func isAddr(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err == nil
}

func isBaseURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		u.RawQuery == "" && u.Fragment == "" && u.User == nil
}

// hasPath reports whether a base URL has a path.
func hasPath(text string) bool {
	u, err := url.Parse(text)
	return err == nil && strings.Trim(u.Path, "/") != ""
}

func hasScheme(text string, schemes ...string) bool {
	scheme, rest, ok := strings.Cut(text, "://")
	return ok && rest != "" && slices.Contains(schemes, scheme)
}

// instance is how the console names this deployment.
func (s *Settings) instance() web.Instance { return web.Instance{Name: s.Instance, Colour: s.Colour} }

// model returns the endpoint that extracts memory, zero for the built-in extractor.
func (s *Settings) model() model.Endpoint {
	return model.Endpoint{URL: s.ModelURL, Name: s.ModelName, Key: s.ModelKey}
}

// embeddingModels returns when the built-in model embeds, and the least cosine of what an endpoint's model finds.
func (s *Settings) embeddingModels() (builtin server.Builtin, least float64, setting string, err error) {
	if builtin, err = server.ParseBuiltin(s.Embeddings, s.EmbedURL != ""); err != nil {
		return "", 0, "EMBEDDINGS", err
	}
	least, err = server.ParseLeast(s.EmbedLeast, s.EmbedURL != "")
	return builtin, least, "EMBEDDINGS_LEAST", err
}

// embeddings returns the endpoint for embeddings, zero for none.
func (s *Settings) embeddings() model.Endpoint {
	return model.Endpoint{URL: s.EmbedURL, Name: s.EmbedName, Key: s.EmbedKey}
}

// validateModel reports an endpoint that is set in part or cannot work. It does not repeat the
// address, which may hold a password.
func validateModel(family string, e model.Endpoint, bad func(name, format string, args ...any)) {
	switch {
	case e.URL == "" && e.Name == "" && e.Key == "":
	case e.URL == "":
		bad(family+"_URL",
			"is not set, but ANNALS_%s_NAME or ANNALS_%s_KEY is: set the address of the endpoint, or none of them", family, family)
	case e.Name == "":
		bad(family+"_NAME", "is not set, but ANNALS_%s_URL is: name the model at the endpoint", family)
	default:
		if err := e.Validate(); err != nil {
			bad(family+"_URL", "cannot be used: %v", err)
		}
	}
}

// planTerms returns the terms of every plan.
func (s *Settings) planTerms() (metering.PlanTerms, error) {
	terms := metering.DefaultPlanTerms()
	if s.Plans != "" {
		var err error
		if terms, err = terms.Override(s.Plans); err != nil {
			return nil, err
		}
	}
	if s.Retention != nil {
		selfHosted := terms[metering.SelfHosted]
		selfHosted.RetentionDays = *s.Retention
		terms[metering.SelfHosted] = selfHosted
	}
	return terms, nil
}

// config returns the configuration of the service, without a logger. The settings must be valid.
func (s *Settings) config() (server.Config, error) {
	terms, err := s.planTerms()
	if err != nil {
		return server.Config{}, err
	}
	roles, err := server.ParseRoles(s.Roles)
	if err != nil {
		return server.Config{}, fmt.Errorf("ANNALS_ROLES %w", err)
	}
	builtin, least, setting, err := s.embeddingModels()
	if err != nil {
		return server.Config{}, fmt.Errorf("ANNALS_%s %w", setting, err)
	}
	proxies, err := httpx.ParseProxies(s.Proxies)
	if err != nil {
		return server.Config{}, fmt.Errorf("ANNALS_TRUSTED_PROXIES %w", err)
	}
	return server.Config{
		InForce: grammar.InForce(s), Instance: s.instance(), Proxies: proxies, MCPOrigins: s.MCPOrigins,
		Data:    datafolder.Folder{Dir: s.DataDir, HashKey: s.HashKey, SealKey: s.SealKey, SchemaPrefix: s.Prefix},
		Roles:   roles,
		APIAddr: s.APIAddr, ConsoleAddr: s.ConsoleAddr, OpsAddr: s.OpsAddr, Profile: s.Profile == "on",
		RequireReason: s.RequireReason == "on",
		URLs:          auth.URLs{API: s.APIURL, Console: s.ConsoleURL, Auth: s.AuthURL},
		EventStore:    s.EventStore, Postgres: s.Postgres, SchemaPrefix: s.Prefix, PostgresReplica: s.Replica,
		Index: s.elastic(), Derive: s.Pipeline == "on",
		Model: s.model(), Embeddings: s.embeddings(), EmbeddingsLeast: least, Builtin: builtin, BuiltinFile: s.EmbedModel,
		NoRecallFloor: s.Floor == "off",
		TLSCert:       s.TLSCert, TLSKey: s.TLSKey,
		StopDelay: time.Duration(s.StopDelay) * time.Second,
		BulkItems: s.BulkItems, BulkBytes: int64(s.BulkMiB) << 20,
		MinFreeDisk: uint64(s.MinFreeDisk) << 20, RateLimit: s.RateLimit, PlanTerms: terms, SignIn: s.signIn(),
		MemberLimits: s.memberLimits(), Audit: s.auditConfig(),
	}, nil
}

// validateDatabase does not repeat an address, which may hold a password.
func (s *Settings) validateDatabase(bad func(name, format string, args ...any)) {
	if s.Postgres != server.Embedded && !hasScheme(s.Postgres, "postgres", "postgresql") {
		bad("POSTGRES", `is neither "embedded" nor an address such as postgres://user@host:5432/annals`)
	}
	if _, err := schemas.Parse(s.Prefix); err != nil {
		bad("POSTGRES_SCHEMA_PREFIX", "%v", err)
	}
	if s.Replica == "" {
		return
	}
	if s.Postgres == server.Embedded {
		bad("POSTGRES_REPLICA", "is set, but ANNALS_POSTGRES is embedded: set that to the address of the primary")
		return
	}
	if err := replica.CheckURL(s.Replica); err != nil {
		bad("POSTGRES_REPLICA", "%v", err)
	}
}

// maxStopDelay is the longest delay of a stop, in seconds.
const maxStopDelay = 300

// maxRetentionDays is the most days that bodies of calls are kept.
const maxRetentionDays = 365

// validateSwitches reports what is neither on nor off. Empty is the default of each.
func (s *Settings) validateSwitches(bad func(name, format string, args ...any)) {
	for _, o := range []struct{ name, value string }{
		{"PIPELINE", s.Pipeline},
		{"PROFILE", s.Profile},
		{"RECALL_FLOOR", s.Floor},
		{"OIDC_TRUST_EMAIL", s.TrustEmail},
		{"SIGN_UP", s.SignUp},
		{"REQUIRE_REASON", s.RequireReason},
		{"AUDIT_PUBLIC", s.AuditPublic},
	} {
		if o.value != "on" && o.value != "off" && o.value != "" {
			bad(o.name, "is %q: want on or off", o.value)
		}
	}
}

func (s *Settings) validateAmounts(bad func(name, format string, args ...any)) {
	if s.MinFreeDisk < 0 {
		bad("MIN_FREE_DISK", "is %d: want a number of MiB, 0 for none", s.MinFreeDisk)
	}
	if s.BulkItems < 0 {
		bad("BULK_BACKLOG_ITEMS", "is %d: want a number of items, 0 for the default", s.BulkItems)
	}
	if s.BulkMiB < 0 {
		bad("BULK_BACKLOG_MIB", "is %d: want a number of MiB, 0 for the default", s.BulkMiB)
	}
	if s.RateLimit != nil && *s.RateLimit < 0 {
		bad("RATE_LIMIT_PER_MINUTE", "is %d: want a number of requests, 0 for no limit", *s.RateLimit)
	}
	if s.Retention != nil && (*s.Retention < 0 || *s.Retention > maxRetentionDays) {
		bad("PAYLOAD_RETENTION_DAYS", "is %d: want 0 to %d days", *s.Retention, maxRetentionDays)
	}
	if s.StopDelay < 0 || s.StopDelay > maxStopDelay {
		bad("STOP_DELAY_SECONDS", "is %d: want 0 to %d seconds", s.StopDelay, maxStopDelay)
	}
}

// AuditSettings are the settings of "serve" about the audit log.
type AuditSettings struct {
	AuditAnchor  string `name:"audit-anchor" setting:"ANNALS_AUDIT_ANCHOR" group:"Audit log" help:"Where the files of the audit log are copied to: a folder on another machine, or https://host/path below which files are stored by PUT; default: nowhere."`
	AuditToken   string `name:"audit-anchor-token-file" setting:"ANNALS_AUDIT_ANCHOR_TOKEN_FILE" group:"Audit log" help:"File with the bearer token for that server, if it needs one."`
	AuditPolicy  string `name:"audit-policy" setting:"ANNALS_AUDIT_POLICY" group:"Audit log" placeholder:"FILE" help:"Policy file (C2SP tlog-policy) with the witnesses that cosign checkpoints, and their addresses; default: no witness."`
	AuditPublic  string `name:"audit-public" setting:"ANNALS_AUDIT_PUBLIC" group:"Audit log" default:"off" help:"Whether the API serves checkpoints, tiles and keys of the audit logs of organizations without a key; never proofs."`
	AuditSeconds int    `name:"audit-seconds" setting:"ANNALS_AUDIT_SECONDS" group:"Audit log" default:"5" help:"Seconds between two looks for events that no checkpoint covers, 1 to 3600."`
}

// maxAuditSeconds is the longest time between two looks, in seconds.
const maxAuditSeconds = 3600

// validateAudit reports settings that cannot work.
func (a AuditSettings) validateAudit(bad func(name, format string, args ...any)) {
	if _, err := audit.OpenPlace(a.AuditAnchor, a.AuditToken); a.AuditAnchor != "" && err != nil {
		bad("AUDIT_ANCHOR", "cannot be used: %v", err)
	}
	if a.AuditAnchor == "" && a.AuditToken != "" {
		bad("AUDIT_ANCHOR_TOKEN_FILE", "is set, but ANNALS_AUDIT_ANCHOR is not: remove it, or set that too")
	}
	if _, err := audit.ReadPolicy(a.AuditPolicy); a.AuditPolicy != "" && err != nil {
		bad("AUDIT_POLICY", "cannot be used: %v", err)
	}
	if a.AuditSeconds < 0 || a.AuditSeconds > maxAuditSeconds {
		bad("AUDIT_SECONDS", "is %d: want 1 to %d seconds, 0 for the default", a.AuditSeconds, maxAuditSeconds)
	}
}

// auditConfig returns the configuration of the service.
func (a AuditSettings) auditConfig() server.AuditConfig {
	return server.AuditConfig{
		Anchor: a.AuditAnchor, TokenFile: a.AuditToken, Policy: a.AuditPolicy,
		Public: a.AuditPublic == "on", Every: time.Duration(a.AuditSeconds) * time.Second,
	}
}
