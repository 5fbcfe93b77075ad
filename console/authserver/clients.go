package authserver

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/web"
)

// The bounds of a client.
const (
	maxRedirects = 10
	maxRedirect  = 1000 // bytes
	maxClientID  = 500  // bytes
	maxName      = 80   // characters
)

const (
	clientPrefix = "mcpc_"
	offline      = "offline_access"
)

// Client is a program that asks people for access.
type Client struct {
	ID        string   `json:"client_id"`
	Name      string   `json:"client_name"`
	Redirects []string `json:"redirect_uris"`
	// TokenAuth is that of the document of a client, "" for none.
	TokenAuth string `json:"token_endpoint_auth_method"`
}

// errNoClient reports a client that is not known, or no more.
var errNoClient = errors.New("there is no such client")

func invalidClient() *Error {
	return &Error{http.StatusUnauthorized, "invalid_client", "the client is not registered, or no more", 0}
}

// client finds a client. Only for a person who is signed in is a document fetched.
func (s *Service) client(ctx context.Context, id string) (Client, error) {
	switch {
	case len(id) > maxClientID:
		return Client{}, errNoClient
	case strings.HasPrefix(id, clientPrefix):
		c := Client{ID: id}
		err := s.DB.QueryRow(ctx, `select name, redirects from ops.oauth_clients where id = $1`, id).Scan(&c.Name, &c.Redirects)
		if errors.Is(err, pgx.ErrNoRows) {
			err = errNoClient
		}
		return c, wrap("find a client", err)
	case s.Documents.allow(id):
		return s.fetch(ctx, id)
	default:
		return Client{}, errNoClient
	}
}

// knows reports whether a client may use the token endpoint.
func (s *Service) knows(ctx context.Context, id string) error {
	if id == "" {
		return refuse(invalidRequest, "client_id is missing")
	}
	if s.Documents.allow(id) {
		return nil
	}
	if _, err := s.client(ctx, id); errors.Is(err, errNoClient) {
		return invalidClient()
	} else if err != nil {
		return err
	}
	return nil
}

// shownName is the name of a client as people see it: a line without control characters.
func shownName(name string) string {
	name = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(name, ""))
	return web.Cut(strings.TrimSpace(name), maxName)
}

// How long a client without a grant is kept: one that never had any, and one since its last one, which is known to a
// day.
const (
	newClient    = 24 * time.Hour
	unusedClient = 30*24*time.Hour + grantedCounts
)

// grantedCounts is how precisely the end of the last grant of a client is known.
const grantedCounts = 24 * time.Hour
