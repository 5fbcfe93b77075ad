package main

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/annals-project/annals/internal/auth"
)

// Embedded is the value of a setting that asks for the part inside the process.
const Embedded = "embedded"

// SecretBytes is the length of the hashing key.
const SecretBytes = 32

// Settings are the settings of "serve". Each is a flag and a variable of the environment; the flag wins.
type Settings struct {
	DataDir     string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Folder that holds all that the service keeps."`
	APIAddr     string `name:"api-addr" setting:"ANNALS_API_ADDR" default:"127.0.0.1:8080" help:"Address that the API listens on."`
	ConsoleAddr string `name:"console-addr" setting:"ANNALS_CONSOLE_ADDR" default:"127.0.0.1:8081" help:"Address that the console listens on."`
	OpsAddr     string `name:"ops-addr" setting:"ANNALS_OPS_ADDR" help:"Address that /readyz and /metrics listen on, with the causes of what is not ready; default: that of the API, without causes."`
	APIURL      string `name:"api-url" setting:"ANNALS_API_URL" help:"Public address of the API; default from the address it listens on."`
	ConsoleURL  string `name:"console-url" setting:"ANNALS_CONSOLE_URL" help:"Public address of the console; default from the address it listens on."`
	AuthURL     string `name:"auth-url" setting:"ANNALS_AUTH_URL" help:"Public address of the authorization server; default the console's."`
	EventStore  string `name:"eventstore" setting:"ANNALS_EVENTSTORE" default:"embedded" help:"Event store: embedded, or esdb://host:2113."`
	Postgres    string `name:"postgres" setting:"ANNALS_POSTGRES" default:"embedded" help:"Database: embedded, or postgres://user@host/database."`
	Index       string `name:"index" setting:"ANNALS_INDEX" default:"embedded" help:"Recall index: embedded."`
	Pipeline    string `name:"pipeline" setting:"ANNALS_PIPELINE" default:"on" help:"Derive memory from what was sent: on or off."`
	ModelURL    string `name:"model-url" setting:"ANNALS_MODEL_URL" help:"Base address of an OpenAI-compatible endpoint that extracts memory, such as https://models.example.com/v1; default: the built-in extractor."`
	ModelName   string `name:"model-name" setting:"ANNALS_MODEL_NAME" help:"Model that the endpoint is asked for."`
	ModelKey    string `name:"model-key" setting:"ANNALS_MODEL_KEY" help:"Key of the endpoint, where it wants one; better set in the environment than as a flag."`
	EmbedURL    string `name:"embeddings-url" setting:"ANNALS_EMBEDDINGS_URL" help:"Base address of an OpenAI-compatible endpoint for embeddings; default: recall goes by words alone."`
	EmbedName   string `name:"embeddings-name" setting:"ANNALS_EMBEDDINGS_NAME" help:"Model of the embeddings; another one embeds everything anew."`
	EmbedKey    string `name:"embeddings-key" setting:"ANNALS_EMBEDDINGS_KEY" help:"Key of that endpoint, where it wants one; better set in the environment than as a flag."`
	HashKey     string `name:"hash-key" setting:"ANNALS_HASH_KEY" help:"Key of the hashes that stand for customer text, 32 bytes as base64 or hex, never changed; default: drawn once into the data folder."`
	SealKey     string `name:"seal-key" setting:"ANNALS_SEAL_KEY" help:"Keys that API keys are sealed with so that they can be shown again, each 32 bytes as base64 or hex, separated by commas: the first seals, the others open; better set in the environment than as a flag; default: drawn once into the data folder."`
	TLSCert     string `name:"tls-cert" setting:"ANNALS_TLS_CERT" help:"Certificate file (PEM); with a key the API speaks HTTPS."`
	TLSKey      string `name:"tls-key" setting:"ANNALS_TLS_KEY" help:"Private key file (PEM) of the certificate."`
	MinFreeDisk int    `name:"min-free-disk" setting:"ANNALS_MIN_FREE_DISK" default:"1024" help:"MiB of the data folder's disk that must be free for writes to be taken; 0 looks at no disk."`
	RateLimit   *int   `name:"rate-limit-per-minute" setting:"ANNALS_RATE_LIMIT_PER_MINUTE" help:"Requests that an organization may send in any 60 seconds, whatever its plan; 0 is no limit; default: as its plan says."`
	Plans       string `name:"plans" setting:"ANNALS_PLANS" help:"Terms of plans that differ from the default, as JSON by plan."`
	LogLevel    string `name:"log-level" setting:"ANNALS_LOG_LEVEL" default:"info" help:"Least level that is logged: debug, info, warn or error."`
}

// Validate reports every setting that cannot work, with what would. Values that may hold a password are not repeated.
func (s *Settings) Validate() error {
	var errs []error
	bad := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("ANNALS_%s %s", name, fmt.Sprintf(format, args...)))
	}
	if strings.TrimSpace(s.DataDir) == "" {
		bad("DATA_DIR", "is empty: name a folder, such as ./data")
	}
	for _, a := range []struct{ name, value string }{{"API_ADDR", s.APIAddr}, {"CONSOLE_ADDR", s.ConsoleAddr}, {"OPS_ADDR", s.OpsAddr}} {
		if a.name == "OPS_ADDR" && a.value == "" {
			continue
		}
		if _, _, err := splitAddr(a.value); err != nil {
			bad(a.name, "is %q: want host:port, such as 127.0.0.1:8080", a.value)
		}
	}
	for _, u := range []struct{ name, value string }{{"API_URL", s.APIURL}, {"CONSOLE_URL", s.ConsoleURL}, {"AUTH_URL", s.AuthURL}} {
		if u.value != "" && !isBaseURL(u.value) {
			bad(u.name, "is %q: want an address such as https://memory.example.com, without a query", u.value)
		}
	}
	if s.EventStore != Embedded && !hasScheme(s.EventStore, "esdb", "esdb+discover") {
		bad("EVENTSTORE", `is neither "embedded" nor an address such as esdb://host:2113`)
	}
	if s.Postgres != Embedded && !hasScheme(s.Postgres, "postgres", "postgresql") {
		bad("POSTGRES", `is neither "embedded" nor an address such as postgres://user@host:5432/annals`)
	}
	if s.Index != Embedded {
		bad("INDEX", `can only be "embedded"`)
	}
	if s.MinFreeDisk < 0 {
		bad("MIN_FREE_DISK", "is %d: want a number of MiB, 0 for none", s.MinFreeDisk)
	}
	if s.RateLimit != nil && *s.RateLimit < 0 {
		bad("RATE_LIMIT_PER_MINUTE", "is %d: want a number of requests, 0 for no limit", *s.RateLimit)
	}
	if s.Pipeline != "on" && s.Pipeline != "off" {
		bad("PIPELINE", "is %q: want on or off", s.Pipeline)
	}
	if _, err := s.tariff(); err != nil {
		bad("PLANS", "%v", err)
	}
	if _, err := s.Level(); err != nil {
		bad("LOG_LEVEL", "is %q: want debug, info, warn or error", s.LogLevel)
	}
	if _, err := DecodeSecret(s.HashKey); err != nil {
		bad("HASH_KEY", "%v", err)
	}
	if _, err := decodeSecrets(s.SealKey); err != nil {
		bad("SEAL_KEY", "%v", err)
	}
	s.validateTLS(bad)
	validateModel("MODEL", s.model(), bad)
	validateModel("EMBEDDINGS", s.embeddings(), bad)
	return errors.Join(errs...)
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
		}
	}
}

// PipelineOn says whether memory is derived.
func (s *Settings) PipelineOn() bool { return s.Pipeline == "on" }

// Level is the least level that is logged.
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

// PublicURLs are the addresses that clients are told, without a trailing slash.
type PublicURLs struct {
	API, Console, Auth string
}

// auth is the addresses as the edge tells them.
func (u PublicURLs) auth() auth.URLs { return auth.URLs{API: u.API, Console: u.Console, Auth: u.Auth} }

// PublicURLs derives the addresses that are not set from those that are really listened on, which tell more than the settings
// where these ask for port 0.
func (s *Settings) PublicURLs(apiAddr, consoleAddr string) PublicURLs {
	scheme := "http"
	if s.TLSCert != "" {
		scheme = "https"
	}
	u := PublicURLs{
		API:     or(s.APIURL, urlOf(scheme, apiAddr)),
		Console: or(s.ConsoleURL, urlOf(scheme, consoleAddr)),
	}
	u.Auth = or(s.AuthURL, u.Console)
	return u
}

// DecodeSecret reads a key of SecretBytes bytes from base64 or hex. An empty string is no key: nil, nil.
func DecodeSecret(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	for _, decode := range []func(string) ([]byte, error){
		hex.DecodeString, base64.StdEncoding.DecodeString, base64.RawStdEncoding.DecodeString,
		base64.URLEncoding.DecodeString, base64.RawURLEncoding.DecodeString,
	} {
		if b, err := decode(text); err == nil && len(b) == SecretBytes {
			return b, nil
		}
	}
	return nil, fmt.Errorf("is not %d bytes as base64 or hex: openssl rand -base64 %d makes one", SecretBytes, SecretBytes)
}

func or(value, otherwise string) string {
	if value != "" {
		return strings.TrimRight(value, "/")
	}
	return otherwise
}

// urlOf makes an address that this machine can call from one that it listens on.
func urlOf(scheme, addr string) string {
	host, port, err := splitAddr(addr)
	if err != nil {
		return scheme + "://" + addr
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

func splitAddr(addr string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(addr)
	if err != nil {
		return "", "", fmt.Errorf("split address: %w", err)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return "", "", fmt.Errorf("port of address: %w", err)
	}
	return host, port, nil
}

func isBaseURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" && u.Fragment == "" && u.User == nil
}

func hasScheme(text string, schemes ...string) bool {
	scheme, rest, ok := strings.Cut(text, "://")
	return ok && rest != "" && slices.Contains(schemes, scheme)
}
