package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/internal/auth"
)

func TestConfig_PublicURLs(t *testing.T) {
	for name, c := range map[string]struct {
		change       func(*Config)
		api, console string
		want         auth.URLs
	}{
		"from what is listened on": {func(*Config) {}, "127.0.0.1:41234", "127.0.0.1:41235", auth.URLs{API: "http://127.0.0.1:41234", Console: "http://127.0.0.1:41235", Auth: "http://127.0.0.1:41235"}},
		"every interface":          {func(*Config) {}, "[::]:8080", "0.0.0.0:8081", auth.URLs{API: "http://localhost:8080", Console: "http://localhost:8081", Auth: "http://localhost:8081"}},
		"HTTPS":                    {func(s *Config) { s.TLSCert = "c" }, "h:1", "127.0.0.1:8081", auth.URLs{API: "https://h:1", Console: "https://127.0.0.1:8081", Auth: "https://127.0.0.1:8081"}},
		"set":                      {func(s *Config) { s.URLs.API, s.URLs.Console = "https://a/", "https://c/" }, "h:1", "h:2", auth.URLs{API: "https://a", Console: "https://c", Auth: "https://c"}},
		"own authorization server": {func(s *Config) { s.URLs.Auth = "https://auth" }, "h:1", "h:2", auth.URLs{API: "http://h:1", Console: "http://h:2", Auth: "https://auth"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Config{}
			c.change(&s)
			if diff := cmp.Diff(c.want, s.publicURLs(c.api, c.console)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
