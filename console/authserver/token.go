package authserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/secret"
)

const (
	accessPrefix  = "svc_oat_"
	refreshPrefix = "svc_ort_"

	accessLives  = time.Hour
	refreshLives = 30 * 24 * time.Hour
	// repeats is how long a spent refresh token answers the same successor again: clients refresh in parallel, and
	// repeat what they got no answer to.
	repeats = 120 * time.Second
	// noticed is how long a code is kept after its end, so that its second use is noticed.
	noticed = time.Hour
)

// token is the token endpoint.
func (s *Service) token(r *web.Request) (answer, error) {
	if err := limited(r, s.calling, s.Calls); err != nil {
		return answer{}, err
	}
	form, err := formOf(r)
	if err != nil {
		return answer{}, err
	}
	var out TokenResponse
	switch kind := form.get("grant_type"); {
	case kind == grantCode:
		out, err = s.redeem(r.Context(), form)
	case kind == grantRefresh:
		out, err = s.refresh(r.Context(), form)
	case kind == grantAgent && s.Exchange != nil:
		if len(form["resource"]) > 1 {
			return answer{}, refuse(invalidTarget, "name one resource")
		}
		out, err = s.Exchange.Exchange(r.Context(), form.get("assertion"), form.get("resource"), form.get("scope"))
	case kind == "":
		err = refuse(invalidRequest, "grant_type is missing")
	default:
		err = refuse("unsupported_grant_type", "grant_type is %s, %s or %s", grantCode, grantRefresh, grantAgent)
	}
	return answer{http.StatusOK, out}, err
}

// change runs a transaction that alone changes the tokens of the grant that of finds: a statement with one parameter.
// The refusal that do returns is one after the transaction.
func (s *Service) change(
	ctx context.Context, of string, hash []byte, do func(tx pgx.Tx, grant uuid.UUID, client string) (*Error, error),
) error {
	ended := refuse(invalidGrant, "the grant is not known, was revoked, or has ended")
	var grant uuid.UUID
	err := s.DB.QueryRow(ctx, of, hash).Scan(&grant)
	if errors.Is(err, pgx.ErrNoRows) {
		return ended
	}
	if err != nil {
		return fmt.Errorf("find a grant: %w", err)
	}
	if live, err := s.Access.LiveGrants(ctx, []uuid.UUID{grant}); err != nil || len(live) == 0 {
		return cmp.Or[error](err, ended)
	}
	if lacks, err := s.lacksFactor(ctx, grant); err != nil || lacks {
		return cmp.Or[error](err, refuse(invalidGrant,
			"the organization requires a second factor, and the person consented without one: ask the person again"))
	}
	var refused *Error
	err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) (err error) {
		var client string
		err = tx.QueryRow(ctx, `select id, client_id from ops.oauth_grants where id = (`+of+`) for no key update`, hash).
			Scan(&grant, &client)
		if errors.Is(err, pgx.ErrNoRows) {
			refused = ended
			return nil
		}
		if err == nil {
			refused, err = do(tx, grant, client)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("make tokens: %w", err)
	}
	if refused != nil {
		return refused
	}
	return nil
}

// redeem makes tokens of a code. The second use of a code ends what the first one made.
func (s *Service) redeem(ctx context.Context, form parameters) (out TokenResponse, err error) {
	client, verifier := form.get("client_id"), form.get("code_verifier")
	if err := s.knows(ctx, client); err != nil {
		return out, err
	}
	if !verified.MatchString(verifier) {
		return out, refuse(invalidRequest, "code_verifier has 43 to 128 characters")
	}
	resource, err := s.resourceOf(form)
	if err != nil {
		return out, err
	}
	hash := hashOf(form.get("code"))
	err = s.change(ctx, `select grant_id from ops.oauth_codes where code = $1`, hash,
		func(tx pgx.Tx, grant uuid.UUID, of string) (*Error, error) {
			p := pair{grant: grant}
			var redirect, challenge string
			var used bool
			var expires time.Time
			err := tx.QueryRow(ctx, `select family, redirect, challenge, resource, scopes, used, expires_at
				from ops.oauth_codes where code = $1`, hash).
				Scan(&p.family, &redirect, &challenge, &p.resource, &p.scopes, &used, &expires)
			if err != nil {
				return nil, err
			}
			sum := sha256.Sum256([]byte(verifier))
			proven := subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(sum[:])), []byte(challenge)) == 1
			switch {
			case used:
				return refuse(invalidGrant, "the code was used: what came of it has ended"), endFamily(ctx, tx, p.family)
			case !s.now().Before(expires) || client != of || !proven || !s.serves(p.resource) ||
				resource != "" && p.resource != resource ||
				form.has("redirect_uri") && form.get("redirect_uri") != redirect: // OAuth 2.1 sends none
				return refuse(invalidGrant, "the code has expired, or is for another client, address or verifier"), nil
			}
			if _, err := tx.Exec(ctx, `update ops.oauth_codes set used = true where code = $1`, hash); err != nil {
				return nil, err
			}
			made, err := s.make(ctx, tx, p, p.scopes)
			out = made.response(s.now())
			return nil, err
		})
	return out, err
}

func endFamily(ctx context.Context, tx pgx.Tx, family uuid.UUID) error {
	_, err := tx.Exec(ctx, `delete from ops.oauth_tokens where family = $1`, family)
	return err
}

// pair is what an access token and its refresh token are bound to.
type pair struct {
	grant, family uuid.UUID
	resource      string
	scopes        []string
}

// made are tokens in clear.
type made struct {
	Access, Refresh string
	Scopes          []string
	Until           time.Time
}

func (m made) response(now time.Time) TokenResponse {
	return TokenResponse{
		AccessToken: m.Access, TokenType: "Bearer", ExpiresIn: max(0, int64(m.Until.Sub(now)/time.Second)),
		RefreshToken: m.Refresh, Scope: strings.Join(m.Scopes, " "),
	}
}

// make makes an access token for some of the scopes of a pair, and its refresh token for all of them.
func (s *Service) make(ctx context.Context, tx pgx.Tx, p pair, narrowed []string) (made, error) {
	now := s.now()
	m := made{accessPrefix + newToken(), refreshPrefix + newToken(), narrowed, now.Add(accessLives)}
	_, err := tx.Exec(ctx, `insert into ops.oauth_tokens
		(refresh, access, grant_id, family, resource, scopes, narrowed, access_until, refresh_until)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, hashOf(m.Refresh), hashOf(m.Access), p.grant, p.family, p.resource,
		p.scopes, narrowed, m.Until, now.Add(refreshLives))
	return m, err
}

// refresh spends a refresh token. A spent one answers the same tokens again for a while; after that it is taken for a
// stolen one, and all of its family end.
func (s *Service) refresh(ctx context.Context, form parameters) (out TokenResponse, err error) {
	client := form.get("client_id")
	if err := s.knows(ctx, client); err != nil {
		return out, err
	}
	resource, err := s.resourceOf(form)
	if err != nil {
		return out, err
	}
	hash := hashOf(form.get("refresh_token"))
	err = s.change(ctx, `select grant_id from ops.oauth_tokens where refresh = $1`, hash,
		func(tx pgx.Tx, grant uuid.UUID, of string) (*Error, error) {
			p, now := pair{grant: grant}, s.now()
			var until time.Time
			var spent *time.Time
			var key *string
			var sealed []byte
			err := tx.QueryRow(ctx, `select family, resource, scopes, refresh_until, spent_at, successor_key, successor
				from ops.oauth_tokens where refresh = $1`, hash).
				Scan(&p.family, &p.resource, &p.scopes, &until, &spent, &key, &sealed)
			if errors.Is(err, pgx.ErrNoRows) { // ended since the grant was found
				return refuse(invalidGrant, "the refresh token has ended"), nil
			}
			switch {
			case err != nil:
				return nil, err
			case client != of || !s.serves(p.resource) || resource != "" && p.resource != resource || !now.Before(until):
				return refuse(invalidGrant, "the refresh token has expired, or is for another client"), nil
			case spent != nil && now.Before(spent.Add(repeats)):
				m, err := s.successor(hash, *key, sealed)
				out = m.response(now)
				return nil, err
			case spent != nil:
				return refuse(invalidGrant, "the refresh token was spent: all that came of the same consent has ended"),
					endFamily(ctx, tx, p.family)
			}
			narrowed, refused := s.narrow(p, form.get("scope"))
			if refused != nil {
				return refused, nil
			}
			m, err := s.make(ctx, tx, p, narrowed)
			out = m.response(now)
			if err == nil {
				err = s.spend(ctx, tx, hash, m, now)
			}
			return nil, err
		})
	return out, err
}

// narrow are the scopes of an access token that a client asks for: those of its refresh token, or fewer.
func (s *Service) narrow(p pair, asked string) ([]string, *Error) {
	words := both(s.known(asked, p.resource), strings.Fields(asked))
	if len(words) == 0 {
		return p.scopes, nil
	}
	if len(both(words, p.scopes)) < len(words) {
		return nil, refuse(invalidScope, "the person did not grant these scopes")
	}
	return words, nil
}

// spend marks a refresh token as spent and keeps its successor, sealed.
func (s *Service) spend(ctx context.Context, tx pgx.Tx, hash []byte, next made, now time.Time) error {
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	sealed, err := s.Sealer.Seal(uuid.UUID(hash[:16]), string(text))
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `update ops.oauth_tokens set spent_at = $2, successor_key = $3, successor = $4 where refresh = $1`,
		hash, now, sealed.Key, sealed.Data)
	return err
}

func (s *Service) successor(hash []byte, key string, sealed []byte) (m made, err error) {
	text, err := s.Sealer.Open(uuid.UUID(hash[:16]), secret.Sealed{Key: key, Data: sealed})
	if err == nil {
		err = json.Unmarshal([]byte(text), &m)
	}
	return m, err
}

// Resource is a resource that tokens are for: a path of auth.MCPPaths.
func (s *Service) Resource(path string) string { return s.URLs.Console + path }

// resourceOf returns the resource that a request names, "" if it names none. It refuses to make tokens for anything but
// the paths of MCP: tokens for the API are those of agents.
func (s *Service) resourceOf(p parameters) (named string, err error) {
	for _, spelled := range p["resource"] {
		at := slices.IndexFunc(auth.MCPPaths(), func(path string) bool {
			return normal(spelled) == normal(s.Resource(path))
		})
		if at < 0 || named != "" && named != s.Resource(auth.MCPPaths()[at]) {
			return "", refuse(invalidTarget, "the resource is %s", s.Resource(auth.MCPPath))
		}
		named = s.Resource(auth.MCPPaths()[at])
	}
	return named, nil
}

// serves reports whether an address is a resource of this service. It is none any more if the service has moved.
func (s *Service) serves(resource string) bool {
	return slices.ContainsFunc(auth.MCPPaths(), func(path string) bool { return s.Resource(path) == resource })
}

// escaped is an escape of a character that needs none (RFC 3986, section 2.3).
var escaped = regexp.MustCompile(`%(4[1-9A-Fa-f]|5[0-9Aa]|6[1-9A-Fa-f]|7[0-9Aa]|3[0-9]|2[DdEe]|5[Ff]|7[Ee])`)

// normal is an address in the one spelling of those that RFC 3986, section 6.2, calls equal, and without a slash at its
// end. It is "" for what names no resource: a part besides scheme, host and path.
func normal(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(address, "#") {
		return ""
	}
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Hostname())
	port := u.Port()
	if port == map[string]string{"https": "443", "http": "80"}[scheme] {
		port = ""
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" {
		host += ":" + port
	}
	spelled := escaped.ReplaceAllStringFunc(u.EscapedPath(), func(one string) string {
		text, err := url.PathUnescape(one)
		if err != nil {
			return one
		}
		return text
	})
	clean := path.Clean("/" + spelled)
	if strings.Contains(strings.TrimSuffix(spelled, "/"), "//") { // empty segments count
		clean = strings.TrimSuffix(spelled, "/")
	}
	return scheme + "://" + host + strings.TrimSuffix(clean, "/")
}

// known are those of a list of scopes that a resource has, all of them if the list names none.
func (s *Service) known(scope, resource string) []string {
	scopes := auth.MCPScopes(strings.TrimPrefix(resource, s.URLs.Console))
	list := both(scopes, strings.Fields(scope))
	if len(list) == 0 {
		return scopes
	}
	return list
}
