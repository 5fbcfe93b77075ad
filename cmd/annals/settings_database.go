package main

import (
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/pg/schemas"
)

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
