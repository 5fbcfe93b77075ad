package authserver

import (
	"cmp"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
)

// maxQuery bounds the parameters of a request, and maxCarried those that a sign-in carries along.
const (
	maxQuery   = 8 << 10
	maxCarried = 1900
)

// requestLives is how long a request that no sign-in carries along is kept: a person signs in meanwhile.
const requestLives = time.Hour

// stored is the parameter with the id of a request that is kept.
const stored = "stored_request"

// authorize leads to the page of consent, on the console's address, where people have their session.
func (s *Service) authorize(r *web.Request) error {
	query := r.URL.RawQuery
	if len(query) > maxQuery {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"the request of the program is too long: it has at most %d bytes", maxQuery)
	}
	if len(query) > maxCarried {
		id, err := s.store(r, query)
		if err != nil {
			return err
		}
		query = url.Values{stored: {id}}.Encode()
	}
	http.Redirect(r.Writer(), r.Request, s.URLs.Console+"/oauth2/consent?"+query, http.StatusFound)
	return nil
}

// store keeps the parameters of a request. Strangers make them, so a network address makes few.
func (s *Service) store(r *web.Request, query string) (id string, err error) {
	if err := limited(r, s.calling, s.Calls); err != nil {
		return "", fault.New(fault.LimitReached, "", "%v", err)
	}
	id = newToken()
	_, err = s.DB.Exec(r.Context(), `insert into ops.oauth_requests (id, query, expires_at) values ($1, $2, $3)`,
		storedAs(id), query, s.now().Add(requestLives))
	return id, wrap("keep a request", err)
}

// storedAs is the key of a request that is kept: 128 bits of the hash of its id.
func storedAs(id string) uuid.UUID { return uuid.UUID(hashOf(id)[:16]) }

// queryOf returns the parameters of a request, those that are kept if it names them.
func (s *Service) queryOf(r *web.Request) (url.Values, error) {
	id := r.URL.Query().Get(stored)
	if id == "" {
		return r.URL.Query(), nil
	}
	var query string
	err := s.DB.QueryRow(r.Context(), `select query from ops.oauth_requests where id = $1 and expires_at > $2`,
		storedAs(id), s.now()).Scan(&query)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"the request of the program has expired: start again there")
	}
	if err != nil {
		return nil, wrap("find a request", err)
	}
	return url.ParseQuery(query)
}

// request is what a client asks a person for.
type request struct {
	parameters

	client   Client
	redirect string
	// host is where the answer goes; remembers reports that nobody else can answer there.
	host                string
	loopback, remembers bool
	// resource is what the tokens are for.
	resource string
	scopes   []string
	// values are those that the answer repeats.
	values url.Values
}

// request reads what a client asks for. Its errors are shown without a link: no address is known to be the client's.
func (s *Service) request(r *web.Request) (q request, err error) {
	query, err := s.queryOf(r)
	if err != nil {
		return q, err
	}
	q.parameters = parameters(query)
	if err := q.check(); err != nil {
		return q, fault.New(fault.Invalid, fault.CodeInvalidRequest, "%v", err)
	}
	q.client, err = s.client(r.Context(), q.get("client_id"))
	var unusable *documentError
	switch {
	case errors.Is(err, errNoClient):
		return q, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"the program is not registered here, or no more: remove the connection there and add it again")
	case errors.As(err, &unusable):
		return q, fault.New(fault.Invalid, fault.CodeInvalidRequest, "%v", err)
	case err != nil:
		return q, err
	}
	q.redirect = q.get("redirect_uri")
	if refused, is := errors.AsType[*Error](checkRedirect(q.redirect)); is {
		return q, fault.New(fault.Invalid, fault.CodeInvalidRequest, "nothing is sent to the program: %s",
			refused.Description)
	}
	if !q.client.allows(q.redirect) {
		return q, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"the program wants the answer at an address that it did not register, so nothing is sent there")
	}
	q.host, q.loopback, q.remembers = returns(q.redirect)
	q.values = url.Values{"iss": {s.URLs.Auth}}
	if state := q.get("state"); state != "" {
		q.values.Set("state", state)
	}
	return q, nil
}

// challenged is a challenge of S256: 32 bytes in base64url. verified is what it may be of.
var (
	challenged = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
	verified   = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)
)

// complete reads the rest. Its errors are shown to the person, with a link to the client: until a person has decided on
// our page, anybody may have made the request, and the browser is not sent where it wants (RFC 9700, section 4.11.2).
func (s *Service) complete(q *request) error {
	if q.get("response_type") != "code" {
		return refuse("unsupported_response_type", "response_type is code")
	}
	if q.get("code_challenge_method") != "S256" || !challenged.MatchString(q.get("code_challenge")) {
		return refuse(invalidRequest, "PKCE is needed: a code_challenge, and code_challenge_method S256")
	}
	resource, err := s.resourceOf(q.parameters)
	if err != nil {
		return err
	}
	q.resource = cmp.Or(resource, s.Resource(auth.MCPPath))
	q.scopes = s.known(q.get("scope"), q.resource)
	return nil
}

// address is where the client gets an answer.
func (q request) address(values url.Values) string {
	for name, value := range q.values {
		values[name] = value
	}
	separator := "?"
	if strings.Contains(q.redirect, "?") {
		separator = "&"
	}
	return q.redirect + separator + values.Encode()
}

// back sends the browser to the client with an answer.
func (q request) back(r *web.Request, values url.Values) error {
	r.Writer().Header().Set("Cache-Control", "no-store")
	r.Writer().Header().Set("Referrer-Policy", "no-referrer")
	r.Writer().Header().Set("Location", q.address(values))
	r.Writer().WriteHeader(http.StatusSeeOther)
	return nil
}

// values are a refusal as the client gets them.
func (e *Error) values() url.Values {
	return url.Values{"error": {e.Code}, "error_description": {e.Description}}
}

// faulty is what the page of a faulty request shows.
type faulty struct {
	Client, Host, Reason string
	Loopback             bool
	// Back leads to the client with the refusal.
	Back template.URL
}

// faulty shows what is wrong with a request; other errors are returned.
func (q request) faulty(r *web.Request, err error) error {
	refusal, is := errors.AsType[*Error](err)
	if !is {
		return err
	}
	return r.Invalid(fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s", refusal.Description), "faulty.html", faulty{
		Client: q.client.Name, Host: q.host, Loopback: q.loopback, Reason: refusal.Description,
		Back: template.URL(q.address(refusal.values())), //nolint:gosec // allows has checked its scheme
	})
}
