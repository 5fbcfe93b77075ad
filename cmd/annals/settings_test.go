package main

import (
	"encoding/base64"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/runtest"
)

// valid are settings as the parser leaves them when nothing is set.
func valid() Settings {
	return Settings{
		DataDir: "./data", APIAddr: "127.0.0.1:8080", ConsoleAddr: "127.0.0.1:8081",
		EventStore: server.Embedded, Postgres: server.Embedded, Index: server.Embedded, Pipeline: "on", LogLevel: "info",
		Roles: server.AllRoles().String(), Embeddings: "auto",
	}
}

func TestSettings_Valid(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"defaults":           func(*Settings) {},
		"any host":           func(s *Settings) { s.APIAddr = ":8080" },
		"any port":           func(s *Settings) { s.APIAddr = "127.0.0.1:0" },
		"operation":          func(s *Settings) { s.OpsAddr = "127.0.0.1:9090" },
		"operation, any":     func(s *Settings) { s.OpsAddr = ":0" },
		"IPv6":               func(s *Settings) { s.APIAddr = "[::1]:8080" },
		"cluster":            func(s *Settings) { s.EventStore = "esdb+discover://admin:changeit@a:2113,b:2113?tls=true" },
		"database":           func(s *Settings) { s.Postgres = "postgres://annals@db/annals" },
		"database by socket": func(s *Settings) { s.Postgres = "postgresql:///annals?host=/run/postgresql" },
		"replicas": func(s *Settings) {
			s.Postgres, s.Replica = "postgres://annals@db/annals", "postgres://annals:p@a,b:5433/annals?connect_timeout=1"
		},
		"console's address": func(s *Settings) { s.ConsoleURL = "https://console.example.com/" },
		"instance":          func(s *Settings) { s.Instance, s.Colour = "staging", "amber" },
		"instance, plain":   func(s *Settings) { s.Instance = "Test 2 – Zürich" },
		"proxies":           func(s *Settings) { s.Proxies = "10.0.0.0/8, 2001:db8::/32" },
		"public address":    func(s *Settings) { s.APIURL = "https://memory.example.com/" },
		"model":             func(s *Settings) { s.ModelURL, s.ModelName, s.ModelKey = "https://models.example.com/v1", "small", "k" },
		"embeddings":        func(s *Settings) { s.EmbedURL, s.EmbedName = "http://127.0.0.1:11434/v1", "small" },
		"embeddings' least": func(s *Settings) {
			s.EmbedURL, s.EmbedName, s.EmbedLeast = "http://127.0.0.1:11434/v1", "small", "0.35"
		},
		"no embeddings":     func(s *Settings) { s.Embeddings = "none" },
		"builtin, endpoint": func(s *Settings) { s.Embeddings, s.EmbedURL, s.EmbedName = "builtin", "http://h/v1", "small" },
		"plans":             func(s *Settings) { s.Plans = `{"flex":{"projects":50}}` },
		"write alone": func(s *Settings) {
			s.Roles, s.EventStore, s.Postgres = "write", "esdb://log:2113", "postgres://db/annals"
		},
		"all but write": func(s *Settings) {
			s.Roles, s.EventStore, s.Postgres = "read, projector,pipeline", "esdb://log:2113", "postgres://db/annals"
		},
		"model without key": func(s *Settings) { s.ModelURL, s.ModelName = "http://127.0.0.1:11434/v1", "small" },
		"no rate limit":     func(s *Settings) { s.RateLimit = new(0) },
		"key as hex":        func(s *Settings) { s.HashKey = strings.Repeat("0f", datafolder.SecretBytes) },
		"key as base64":     func(s *Settings) { s.HashKey = base64.StdEncoding.EncodeToString(make([]byte, datafolder.SecretBytes)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := valid()
			change(&s)
			runtest.Must(t, s.Check())
		})
	}
}

func TestSettings_Invalid(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for name, c := range map[string]struct {
		change func(*Settings)
		says   string
	}{
		"no folder":            {func(s *Settings) { s.DataDir = " " }, "ANNALS_DATA_DIR"},
		"address without port": {func(s *Settings) { s.APIAddr = "localhost" }, "ANNALS_API_ADDR"},
		"port too high":        {func(s *Settings) { s.ConsoleAddr = "localhost:99999" }, "ANNALS_CONSOLE_ADDR"},
		"operation, no host":   {func(s *Settings) { s.OpsAddr = "9090" }, "ANNALS_OPS_ADDR"},
		"operation, no port":   {func(s *Settings) { s.OpsAddr = "host:none" }, "ANNALS_OPS_ADDR"},
		"address twice":        {func(s *Settings) { s.OpsAddr = s.APIAddr }, "two of them are 127.0.0.1:8080"},
		"profile without ops":  {func(s *Settings) { s.Profile = "on" }, "ANNALS_PROFILE is on: it needs ANNALS_OPS_ADDR"},
		"log format":           {func(s *Settings) { s.LogFormat = "yaml" }, "ANNALS_LOG_FORMAT is \"yaml\": want auto, text or json"},
		"relative URL":         {func(s *Settings) { s.APIURL = "memory.example.com" }, "ANNALS_API_URL"},
		"URL with a query":     {func(s *Settings) { s.AuthURL = "https://a.example.com/?x=1" }, "ANNALS_AUTH_URL"},
		"console with a path":  {func(s *Settings) { s.ConsoleURL = "https://a.example.com/annals" }, "ANNALS_CONSOLE_URL is"},
		"auth URL with a path": {func(s *Settings) { s.AuthURL = "https://a.example.com/annals/" }, "without a path"},
		"colour":               {func(s *Settings) { s.Instance, s.Colour = "a", "purple" }, "ANNALS_INSTANCE_COLOUR is \"purple\": want red, amber, green or blue"},
		"colour of nothing":    {func(s *Settings) { s.Colour = "red" }, "ANNALS_INSTANCE_NAME"},
		"long name":            {func(s *Settings) { s.Instance = strings.Repeat("x", 41) }, "ANNALS_INSTANCE_NAME"},
		"name of two lines":    {func(s *Settings) { s.Instance = "a\nb" }, "ANNALS_INSTANCE_NAME"},
		"proxies by name":      {func(s *Settings) { s.Proxies = "proxy.example.com" }, "ANNALS_TRUSTED_PROXIES names"},
		"event store":          {func(s *Settings) { s.EventStore = "kafka://h" }, "ANNALS_EVENTSTORE begins with neither"},
		"event store's CA":     {func(s *Settings) { s.EventStore = "esdb+discover://u:secret@h1,h2?tlsCAFile=" + missing }, "wrong tlsCAFile"},
		"event store's key":    {func(s *Settings) { s.EventStore = "esdb+discover://u:secret@h1,h2?tlsCaFil=x" }, `unknown setting "tlsCaFil"`},
		"database":             {func(s *Settings) { s.Postgres = "mysql://u:secret@h/db" }, "ANNALS_POSTGRES"},
		"prefix of schemas":    {func(s *Settings) { s.Prefix = "Acme-" }, "ANNALS_POSTGRES_SCHEMA_PREFIX must begin with"},
		"long prefix":          {func(s *Settings) { s.Prefix = strings.Repeat("a", 21) }, "ANNALS_POSTGRES_SCHEMA_PREFIX must have at most 20"},
		"prefix of Postgres":   {func(s *Settings) { s.Prefix = "pg_a" }, "ANNALS_POSTGRES_SCHEMA_PREFIX must not begin with pg_"},
		"replica": {func(s *Settings) {
			s.Postgres, s.Replica = "postgres://db/annals", "postgres://u:secret@h:x/db"
		}, "ANNALS_POSTGRES_REPLICA is no address"},
		"replica of an embedded database": {func(s *Settings) {
			s.Replica = "postgres://u:secret@h/db"
		}, "ANNALS_POSTGRES_REPLICA is set, but ANNALS_POSTGRES is embedded"},
		"index":        {func(s *Settings) { s.Index = "kafka://u:secret@h" }, "ANNALS_INDEX cannot be used: the address"},
		"index's user": {func(s *Settings) { s.Index, s.IndexUser = "https://h:9200", "u" }, "a user is set without a password"},
		"index's credentials": {func(s *Settings) {
			s.Index, s.IndexKey = "https://u:secret@h:9200", "secret"
		}, "an API key and a user are set"},
		"index's CA": {func(s *Settings) { s.Index, s.IndexCA = "https://h:9200", missing }, "ANNALS_INDEX_CA cannot be used: the CA cannot be read"},
		"index's CA, no certificate": {func(s *Settings) {
			s.Index, s.IndexCA = "https://h:9200", "settings_test.go"
		}, "ANNALS_INDEX_CA cannot be used: the CA file holds no certificate"},
		"index's CA, no TLS": {func(s *Settings) {
			s.Index, s.IndexCA = "http://h:9200", missing
		}, "ANNALS_INDEX_CA cannot be used: a CA is set, but"},
		"index's name":             {func(s *Settings) { s.Index, s.IndexName = "https://h:9200", "A*" }, "ANNALS_INDEX_NAME cannot be used: the name must be"},
		"key of an embedded index": {func(s *Settings) { s.IndexKey = "secret" }, "ANNALS_INDEX_KEY is set, but ANNALS_INDEX is embedded"},
		"role":                     {func(s *Settings) { s.Roles = "write,reed" }, "ANNALS_ROLES names the role \"reed\""},
		"no role":                  {func(s *Settings) { s.Roles = "," }, "ANNALS_ROLES names the role \"\""},
		"roles, embedded log":      {func(s *Settings) { s.Roles, s.Postgres = "read", "postgres://db/annals" }, "ANNALS_EVENTSTORE is embedded"},
		"roles, embedded db":       {func(s *Settings) { s.Roles, s.EventStore = "write", "esdb://log:2113" }, "ANNALS_POSTGRES is embedded"},
		"roles, embedded index": {func(s *Settings) {
			s.Roles, s.EventStore, s.Postgres = "write,read", "esdb://log:2113", "postgres://db/annals"
		}, "ANNALS_INDEX is embedded"},
		"pipeline":           {func(s *Settings) { s.Pipeline = "maybe" }, "on or off"},
		"level":              {func(s *Settings) { s.LogLevel = "loud" }, "debug, info, warn or error"},
		"plans":              {func(s *Settings) { s.Plans = `{"gold":{}}` }, "ANNALS_PLANS names the plan \"gold\""},
		"terms of a plan":    {func(s *Settings) { s.Plans = `{"flex":{"projects":-1}}` }, "projects is -1"},
		"short key":          {func(s *Settings) { s.HashKey = "abcd" }, "openssl rand"},
		"short seal key":     {func(s *Settings) { s.SealKey = strings.Repeat("0f", datafolder.SecretBytes) + ",abcd" }, "ANNALS_SEAL_KEY holds as key 2"},
		"model without URL":  {func(s *Settings) { s.ModelName = "small" }, "ANNALS_MODEL_URL is not set"},
		"model's key alone":  {func(s *Settings) { s.ModelKey = "secret" }, "ANNALS_MODEL_URL is not set"},
		"embeddings in part": {func(s *Settings) { s.EmbedKey = "secret" }, "ANNALS_EMBEDDINGS_URL is not set"},
		"embeddings":         {func(s *Settings) { s.Embeddings = "on" }, "ANNALS_EMBEDDINGS is \"on\": want auto, none or builtin"},
		"no embeddings, endpoint": {func(s *Settings) {
			s.Embeddings, s.EmbedURL, s.EmbedName = "none", "http://u:secret@h/v1", "small"
		}, "ANNALS_EMBEDDINGS is none, but ANNALS_EMBEDDINGS_URL is set"},
		"least cosine": {func(s *Settings) {
			s.EmbedURL, s.EmbedName, s.EmbedLeast = "http://h/v1", "small", "1.5"
		}, "ANNALS_EMBEDDINGS_LEAST is \"1.5\": want a cosine from 0 to 1"},
		"missing built-in model":   {func(s *Settings) { s.EmbedModel = missing }, "ANNALS_EMBEDDINGS_MODEL names a file that cannot be read"},
		"built-in model, not used": {func(s *Settings) { s.EmbedModel, s.Embeddings = "settings_test.go", "none" }, "ANNALS_EMBEDDINGS_MODEL is set, but ANNALS_EMBEDDINGS is none"},
		"least cosine alone":       {func(s *Settings) { s.EmbedLeast = "0.3" }, "ANNALS_EMBEDDINGS_LEAST is set, but ANNALS_EMBEDDINGS_URL is not"},
		"model without name":       {func(s *Settings) { s.ModelURL = "https://u:secret@models.example.com/v1" }, "ANNALS_MODEL_NAME is not set"},
		"model's URL":              {func(s *Settings) { s.ModelURL, s.ModelName = "models:secret/v1", "small" }, "ANNALS_MODEL_URL cannot be used"},
		"backlog of batches":       {func(s *Settings) { s.BulkItems = -1 }, "ANNALS_BULK_BACKLOG_ITEMS is -1"},
		"bytes of batches":         {func(s *Settings) { s.BulkMiB = -1 }, "ANNALS_BULK_BACKLOG_MIB is -1"},
		"delay of a stop":          {func(s *Settings) { s.StopDelay = 301 }, "ANNALS_STOP_DELAY_SECONDS is 301: want 0 to 300"},
		"negative delay":           {func(s *Settings) { s.StopDelay = -1 }, "ANNALS_STOP_DELAY_SECONDS is -1"},
		"rate limit":               {func(s *Settings) { s.RateLimit = new(-1) }, "ANNALS_RATE_LIMIT_PER_MINUTE is -1"},
		"certificate alone":        {func(s *Settings) { s.TLSCert = missing }, "ANNALS_TLS_KEY"},
		"no certificate":           {func(s *Settings) { s.TLSCert, s.TLSKey = "settings_test.go", "settings_test.go" }, "ANNALS_TLS_CERT and ANNALS_TLS_KEY cannot be used"},
		"missing certificate":      {func(s *Settings) { s.TLSCert, s.TLSKey = missing, missing }, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			s := valid()
			c.change(&s)
			err := s.Check()
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want a message with %q", err, c.says)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("message repeats a password: %v", err)
			}
		})
	}
}

// What the parser reads of the environment is what the service gets; an empty variable is one that is not set.
func TestSettings_Embeddings(t *testing.T) {
	s := valid()
	s.Embeddings, s.EmbedURL, s.EmbedName, s.EmbedLeast = "builtin", "http://h/v1", "small", "0.35"
	if cfg, err := s.config(); err != nil || cfg.Builtin != server.BuiltinWanted || cfg.EmbeddingsLeast != 0.35 ||
		cfg.Embeddings.URL != "http://h/v1" {
		t.Errorf("%q, %+v, %v, %v", cfg.Builtin, cfg.Embeddings, cfg.EmbeddingsLeast, err)
	}
	got := annals(t.Context(), nil, "", "serve", "--help")
	got.stdout = strings.Join(strings.Fields(got.stdout), " ")
	got.wants(t, exitOK, "[$ANNALS_EMBEDDINGS]", "[$ANNALS_EMBEDDINGS_LEAST]")
}

// The defaults of the limits of members are those of the domain.
func TestSettings_MemberLimits(t *testing.T) {
	s := valid()
	for name, field := range map[string]*int{"Members": &s.Members, "OpenOffers": &s.OpenOffers, "HourOffers": &s.HourOffers} {
		tag, _ := reflect.TypeFor[Settings]().FieldByName(name)
		n, err := strconv.Atoi(tag.Tag.Get("default"))
		runtest.Must(t, err)
		*field = n
	}
	if cfg, err := s.config(); err != nil || cfg.MemberLimits != organization.DefaultLimits() {
		t.Errorf("defaults: %+v, %v", cfg.MemberLimits, err)
	}
	s.Members, s.OpenOffers, s.HourOffers = 0, 7, 9
	want := organization.Limits{Members: organization.DefaultLimits().Members, OpenOffers: 7, OffersPerHour: 9}
	if cfg, err := s.config(); err != nil || cfg.MemberLimits != want {
		t.Errorf("got %+v, %v, want %+v", cfg.MemberLimits, err, want)
	}
}

func TestSettings_AllErrorsAtOnce(t *testing.T) {
	s := valid()
	s.APIAddr, s.Pipeline, s.LogLevel = "x", "x", "x"
	err := s.Check()
	for _, name := range []string{"ANNALS_API_ADDR", "ANNALS_PIPELINE", "ANNALS_LOG_LEVEL"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("message lacks %s: %v", name, err)
		}
	}
}

func TestSettings_Level(t *testing.T) {
	s := valid()
	s.LogLevel = "warn"
	if got, err := s.Level(); err != nil || got != slog.LevelWarn {
		t.Fatalf("got %v, %v", got, err)
	}
}

const settingsPage = "../../docs/settings.md"

var (
	// tableOfSettings is a table of the page between a comment with the variables of its rows and one that ends it.
	tableOfSettings = regexp.MustCompile(`(?s)(<!-- settings: ([A-Z_\s]+?) -->\n).*?(<!-- end -->)`)
	// defaultInHelp is how a help names a default that is not a value.
	defaultInHelp = regexp.MustCompile(`; default:? ([^;.]+)`)
	addressInHelp = regexp.MustCompile(`[a-z+]+://[^\s;]*[^\s;.,]`)
)

// The tables of docs/settings.md are what the tags of Settings have: each setting once, with its flag, its default and
// its help. `make docs` writes them.
func TestSettings_PageIsCurrent(t *testing.T) {
	page, err := os.ReadFile(settingsPage)
	runtest.Must(t, err)
	rows := rowsOfSettings()
	current := tableOfSettings.ReplaceAllStringFunc(string(page), func(table string) string {
		parts := tableOfSettings.FindStringSubmatch(table)
		text := parts[1] + "\n| variable | flag | default | meaning |\n|---|---|---|---|\n"
		for _, name := range strings.Fields(parts[2]) {
			row, ok := rows["ANNALS_"+name]
			if !ok {
				t.Errorf("%s has ANNALS_%s, which is no setting or is there twice", settingsPage, name)
			}
			delete(rows, "ANNALS_"+name)
			text += row
		}
		return text + "\n" + parts[3]
	})
	for name := range rows {
		t.Errorf("%s lacks %s: add it to the comment of a table", settingsPage, name)
	}
	if current == string(page) {
		return
	}
	if os.Getenv("ANNALS_UPDATE_DOCS") == "" {
		t.Fatalf("%s differs from the settings: run make docs, and read the difference", settingsPage)
	}
	runtest.Must(t, os.WriteFile(settingsPage, []byte(current), 0o600))
}

// rowsOfSettings returns a row of a table for each setting, by its variable.
func rowsOfSettings() map[string]string {
	rows := map[string]string{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Settings]()) {
		if field.Anonymous {
			continue
		}
		help, value := field.Tag.Get("help"), field.Tag.Get("default")
		if value != "" {
			value = "`" + value + "`"
		} else if found := defaultInHelp.FindStringSubmatch(help); found != nil {
			value, help = found[1], strings.Replace(help, found[0], "", 1)
		}
		help = addressInHelp.ReplaceAllString(help, "`$0`")
		cells := []string{"`" + field.Tag.Get("setting") + "`", "`--" + field.Tag.Get("name") + "`", value, help}
		rows[field.Tag.Get("setting")] = "| " + strings.Join(cells, " | ") + " |\n"
	}
	return rows
}
