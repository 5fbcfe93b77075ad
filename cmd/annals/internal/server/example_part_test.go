package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/directory"
)

// helloPart serves a page on the console's address, in processes with the role console.
func helloPart() part {
	return part{
		name: "hello", roles: Roles{RoleConsole}, needs: []string{"projections"},
		build: func(_ context.Context, s *Server) (adds, error) {
			page := helloPage{directory: s.read.directory}
			return adds{pages: map[string]httpx.Page{"/hello": page.write}}, nil
		},
	}
}

// helloPage shows how many identities are still being removed.
type helloPage struct{ directory *directory.Queries }

// write writes the page. If it returns an error, that becomes a page with the status of the fault.
func (p helloPage) write(w http.ResponseWriter, r *http.Request) error {
	_, removals, err := p.directory.Open(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, err = fmt.Fprintf(w, "<!doctype html><title>Hello</title><p>Hello. Identities to remove: %d.", removals)
	return err
}
