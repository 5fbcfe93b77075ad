package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/auth"
)

// The bounds of a client.
const (
	maxRedirects = 10
	maxRedirect  = 1000 // bytes
	maxClientID  = 500  // bytes
	maxName      = 80   // characters
	// registrationsOfAll is how many times the registrations of one network address all of them may make in an hour,
	// since one attacker may have many.
	registrationsOfAll = 50
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

// registration is a request to register (RFC 7591). What it does not name is ignored.
type registration struct {
	Name      string   `json:"client_name"`
	Redirects []string `json:"redirect_uris"`
	Kind      string   `json:"application_type"`
}

// registered is the answer. Fields that are not known are absent, never null.
type registered struct {
	ID            string   `json:"client_id"`
	IssuedAt      int64    `json:"client_id_issued_at"`
	Name          string   `json:"client_name,omitempty"`
	Redirects     []string `json:"redirect_uris"`
	Kind          string   `json:"application_type,omitempty"`
	GrantTypes    []string `json:"grant_types"`
	ResponseTypes []string `json:"response_types"`
	TokenAuth     string   `json:"token_endpoint_auth_method"`
	Scope         string   `json:"scope"`
}

func (s *Service) register(r *web.Request) (answer, error) {
	if err := limited(r, s.registering, s.Registrations); err != nil {
		return answer{}, err
	}
	if retry, ok := s.registering.Allow(uuid.Max, registrationsOfAll*s.Registrations); !ok {
		return answer{}, tooMany("too many registrations of all programs: wait", retry)
	}
	var in registration
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return answer{}, refuse(invalidMetadata, "want an object of JSON whose redirect_uris are a list of texts")
	}
	if err := checkRedirects(in.Redirects); err != nil {
		return answer{}, err
	}
	now := s.now()
	c := Client{ID: clientPrefix + newToken(), Name: shownName(in.Name), Redirects: in.Redirects}
	if _, err := s.DB.Exec(r.Context(), `insert into ops.oauth_clients (id, name, redirects, created_at) values ($1, $2, $3, $4)`,
		c.ID, c.Name, c.Redirects, now); err != nil {
		return answer{}, fmt.Errorf("register a client: %w", err)
	}
	if in.Kind != "native" && in.Kind != "web" {
		in.Kind = ""
	}
	return answer{http.StatusCreated, registered{
		c.ID, now.Unix(), c.Name, c.Redirects, in.Kind,
		[]string{grantCode, grantRefresh},
		[]string{"code"},
		"none",
		strings.Join(append(auth.Scopes(), offline), " "),
	}}, nil
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

// unusedClient is how long a client without a grant is kept.
const unusedClient = 30 * 24 * time.Hour
