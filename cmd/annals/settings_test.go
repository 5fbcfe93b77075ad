package main

import (
	"encoding/base64"
	"encoding/hex"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// valid are settings as the parser leaves them when nothing is set.
func valid() Settings {
	return Settings{
		DataDir: "./data", APIAddr: "127.0.0.1:8080", ConsoleAddr: "127.0.0.1:8081",
		EventStore: Embedded, Postgres: Embedded, Index: Embedded, Pipeline: "on", LogLevel: "info",
	}
}

func TestSettingsThatWork(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"defaults":           func(*Settings) {},
		"any host":           func(s *Settings) { s.APIAddr = ":8080" },
		"any port":           func(s *Settings) { s.APIAddr = "127.0.0.1:0" },
		"IPv6":               func(s *Settings) { s.APIAddr = "[::1]:8080" },
		"cluster":            func(s *Settings) { s.EventStore = "esdb+discover://admin:changeit@a:2113,b:2113?tls=true" },
		"database":           func(s *Settings) { s.Postgres = "postgres://annals@db/annals" },
		"database by socket": func(s *Settings) { s.Postgres = "postgresql:///annals?host=/run/postgresql" },
		"public address":     func(s *Settings) { s.APIURL = "https://memory.example.com/" },
		"model":              func(s *Settings) { s.ModelURL, s.ModelName, s.ModelKey = "https://models.example.com/v1", "small", "k" },
		"embeddings":         func(s *Settings) { s.EmbedURL, s.EmbedName = "http://127.0.0.1:11434/v1", "small" },
		"plans":              func(s *Settings) { s.Plans = `{"flex":{"projects":50}}` },
		"model without key":  func(s *Settings) { s.ModelURL, s.ModelName = "http://127.0.0.1:11434/v1", "small" },
		"no rate limit":      func(s *Settings) { s.RateLimit = new(0) },
		"key as hex":         func(s *Settings) { s.HashKey = strings.Repeat("0f", SecretBytes) },
		"key as base64":      func(s *Settings) { s.HashKey = base64.StdEncoding.EncodeToString(make([]byte, SecretBytes)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := valid()
			change(&s)
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestSettingsThatCannotWork(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for name, c := range map[string]struct {
		change func(*Settings)
		says   string
	}{
		"no folder":            {func(s *Settings) { s.DataDir = " " }, "ANNALS_DATA_DIR"},
		"address without port": {func(s *Settings) { s.APIAddr = "localhost" }, "ANNALS_API_ADDR"},
		"port too high":        {func(s *Settings) { s.ConsoleAddr = "localhost:99999" }, "ANNALS_CONSOLE_ADDR"},
		"relative URL":         {func(s *Settings) { s.APIURL = "memory.example.com" }, "ANNALS_API_URL"},
		"URL with a query":     {func(s *Settings) { s.AuthURL = "https://a.example.com/?x=1" }, "ANNALS_AUTH_URL"},
		"event store":          {func(s *Settings) { s.EventStore = "kafka://h" }, "esdb://host:2113"},
		"database":             {func(s *Settings) { s.Postgres = "mysql://u:secret@h/db" }, "ANNALS_POSTGRES"},
		"index":                {func(s *Settings) { s.Index = "https://search" }, "ANNALS_INDEX"},
		"pipeline":             {func(s *Settings) { s.Pipeline = "maybe" }, "on or off"},
		"level":                {func(s *Settings) { s.LogLevel = "loud" }, "debug, info, warn or error"},
		"plans":                {func(s *Settings) { s.Plans = `{"gold":{}}` }, "ANNALS_PLANS names the plan \"gold\""},
		"terms of a plan":      {func(s *Settings) { s.Plans = `{"flex":{"projects":-1}}` }, "projects is -1"},
		"short key":            {func(s *Settings) { s.HashKey = "abcd" }, "openssl rand"},
		"short seal key":       {func(s *Settings) { s.SealKey = strings.Repeat("0f", SecretBytes) + ",abcd" }, "ANNALS_SEAL_KEY holds as key 2"},
		"model without URL":    {func(s *Settings) { s.ModelName = "small" }, "ANNALS_MODEL_URL is not set"},
		"model's key alone":    {func(s *Settings) { s.ModelKey = "secret" }, "ANNALS_MODEL_URL is not set"},
		"embeddings in part":   {func(s *Settings) { s.EmbedKey = "secret" }, "ANNALS_EMBEDDINGS_URL is not set"},
		"model without name":   {func(s *Settings) { s.ModelURL = "https://u:secret@models.example.com/v1" }, "ANNALS_MODEL_NAME is not set"},
		"model's URL":          {func(s *Settings) { s.ModelURL, s.ModelName = "models:secret/v1", "small" }, "ANNALS_MODEL_URL cannot be used"},
		"rate limit":           {func(s *Settings) { s.RateLimit = new(-1) }, "ANNALS_RATE_LIMIT_PER_MINUTE is -1"},
		"certificate alone":    {func(s *Settings) { s.TLSCert = missing }, "ANNALS_TLS_KEY"},
		"missing certificate":  {func(s *Settings) { s.TLSCert, s.TLSKey = missing, missing }, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			s := valid()
			c.change(&s)
			err := s.Validate()
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want a message with %q", err, c.says)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("message repeats a password: %v", err)
			}
		})
	}
}

func TestEveryWrongSettingIsNamedAtOnce(t *testing.T) {
	s := valid()
	s.APIAddr, s.Pipeline, s.LogLevel = "x", "x", "x"
	err := s.Validate()
	for _, name := range []string{"ANNALS_API_ADDR", "ANNALS_PIPELINE", "ANNALS_LOG_LEVEL"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("message lacks %s: %v", name, err)
		}
	}
}

func TestPublicURLs(t *testing.T) {
	for name, c := range map[string]struct {
		change       func(*Settings)
		api, console string
		want         PublicURLs
	}{
		"from what is listened on": {func(*Settings) {}, "127.0.0.1:41234", "127.0.0.1:41235", PublicURLs{"http://127.0.0.1:41234", "http://127.0.0.1:41235", "http://127.0.0.1:41235"}},
		"every interface":          {func(*Settings) {}, "[::]:8080", "0.0.0.0:8081", PublicURLs{"http://localhost:8080", "http://localhost:8081", "http://localhost:8081"}},
		"HTTPS":                    {func(s *Settings) { s.TLSCert = "c" }, "h:1", "127.0.0.1:8081", PublicURLs{"https://h:1", "https://127.0.0.1:8081", "https://127.0.0.1:8081"}},
		"set":                      {func(s *Settings) { s.APIURL, s.ConsoleURL = "https://a/", "https://c/" }, "h:1", "h:2", PublicURLs{"https://a", "https://c", "https://c"}},
		"own authorization server": {func(s *Settings) { s.AuthURL = "https://auth" }, "h:1", "h:2", PublicURLs{"http://h:1", "http://h:2", "https://auth"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := valid()
			c.change(&s)
			if diff := cmp.Diff(c.want, s.PublicURLs(c.api, c.console)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeSecretTakesHexAndBase64(t *testing.T) {
	want := []byte("0123456789abcdef0123456789abcdef")
	for _, text := range []string{hex.EncodeToString(want), base64.StdEncoding.EncodeToString(want), base64.RawURLEncoding.EncodeToString(want)} {
		got, err := DecodeSecret(text)
		if err != nil || string(got) != string(want) {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
}

func TestLevel(t *testing.T) {
	s := valid()
	s.LogLevel = "warn"
	if got, err := s.Level(); err != nil || got != slog.LevelWarn {
		t.Fatalf("got %v, %v", got, err)
	}
}
