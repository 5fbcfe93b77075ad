package authserver

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/ratelimit"
)

const (
	// registrationsOfAll is how many times the registrations of one network address all of them may make in an hour,
	// since one attacker may have many. A part is kept for addresses that registered before (ratelimit.Standing).
	registrationsOfAll = 50
	// registeringSpan is the time in which registrations are counted.
	registeringSpan = time.Hour
	// rememberedClients is how many clients of a network address show its standing: the newest.
	rememberedClients = 200
)

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
	network := s.networkOf(r.Caller().String())
	if err := s.limitRegistration(r, network); err != nil {
		return answer{}, err
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
	if _, err := s.DB.Exec(r.Context(), `insert into ops.oauth_clients (id, name, redirects, created_at, network)
		values ($1, $2, $3, $4, $5)`, c.ID, c.Name, c.Redirects, now, network); err != nil {
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

// networkOf is the keyed hash of a network address.
func (s *Service) networkOf(address string) []byte {
	mac := hmac.New(sha256.New, s.HashKey)
	mac.Write([]byte("registration of a client\x00" + address))
	return mac.Sum(nil)
}

// limitRegistration bounds the registrations of a network address, and of all of them together.
func (s *Service) limitRegistration(r *web.Request, network []byte) error {
	own := ratelimit.Cap{ID: uuid.UUID(network[:16]), Limit: s.Registrations}
	all := ratelimit.Cap{ID: uuid.Max, Limit: registrationsOfAll * s.Registrations, Reserved: true}
	retry, ok, err := s.registering.AllowAll(r.Context(), []ratelimit.Cap{own, all},
		func(ctx context.Context) ([]ratelimit.Standing, error) {
			standing, err := s.standing(ctx, network)
			return []ratelimit.Standing{ratelimit.Newcomer, standing}, err
		})
	if err == nil && !ok {
		err = tooMany("too many registrations of this network address, or of all programs: wait", retry)
	}
	return err
}

// standing returns what is known of the programs that registered from a network address.
func (s *Service) standing(ctx context.Context, network []byte) (standing ratelimit.Standing, err error) {
	err = s.DB.QueryRow(ctx, `with registered as (select id, created_at from ops.oauth_clients
			where network = $1 order by created_at desc limit $3)
		select case
			when exists (select from registered c join ops.oauth_grants g on g.client_key = sha256(convert_to(c.id, 'UTF8')))
				then $4::int
			when exists (select from registered where created_at <= $2) then $5::int
			else $6::int end`,
		network, s.now().Add(-registeringSpan), rememberedClients,
		int(ratelimit.Trusted), int(ratelimit.Returning), int(ratelimit.Newcomer)).Scan(&standing)
	return standing, wrap("find the standing of a network address", err)
}
