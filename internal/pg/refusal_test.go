package pg_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/internal/pg"
)

func TestIsRefusal(t *testing.T) {
	_, silent := pg.OpenPool(t.Context(), "postgres://annals@127.0.0.1:1/annals?sslmode=disable")
	_, wrong := pg.OpenPool(t.Context(), "mysql://annals@127.0.0.1/annals")
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"nobody listens":   {silent, false},
		"server starts":    {&pgconn.PgError{Code: "57P03"}, false},
		"no room":          {fmt.Errorf("connect: %w", &pgconn.PgError{Code: "53300"}), false},
		"wrong password":   {&pgconn.PgError{Code: "28P01"}, true},
		"no such database": {&pgconn.PgError{Code: "3D000"}, true},
		"wrong address":    {wrong, true},
		"something else":   {errors.New("out of ideas"), true},
	} {
		if test.err == nil {
			t.Fatalf("%s: no error", name)
		}
		if got := pg.IsRefusal(test.err); got != test.want {
			t.Errorf("%s: %t for %v", name, got, test.err)
		}
	}
}
