package authserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/statement"
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

// codeLives is how long a code works.
const codeLives = time.Minute

// consented is what the page shows.
type consented struct {
	Client, Host     string
	Loopback, Writes bool
	// Operates reports that only an Owner or Admin can allow it.
	Operates bool
	Scopes   []string
	Offers   []web.Offer
}

// offers are where a person may let a client act now: where the person may do something. A resource that needs the
// scope memory:operate is offered to those alone who may give it.
func (s *Service) offers(r *web.Request, resource string) ([]web.Offer, error) {
	operates := resource == s.Resource(auth.MCPOperatorPath)
	offers, err := r.Offers(s.Access.Projects)
	return slices.DeleteFunc(offers, func(o web.Offer) bool {
		may := o.Places[0].Scopes
		return len(may) == 0 || operates && !slices.Contains(may, string(auth.Operate))
	}), err
}

// both are the scopes of two lists.
func both(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(one string) bool { return !slices.Contains(b, one) })
}

func (s *Service) consentPage(r *web.Request) error {
	q, err := s.request(r)
	if err != nil {
		return err
	}
	if err := s.complete(&q); err != nil {
		return q.faulty(r, err)
	}
	offers, err := s.offers(r, q.resource)
	if err != nil {
		return err
	}
	if q.get("prompt") != "consent" && q.remembers {
		if id, ok, err := s.remembered(r.Context(), r.Person.ID, r.Session.SecondFactor, q, offers); err != nil || ok {
			if err == nil {
				err = s.answer(r, q, id, q.scopes)
			}
			return err
		}
	}
	return r.Render("consent.html", shown(q, offers))
}

func shown(q request, offers []web.Offer) consented {
	return consented{
		Client: q.client.Name, Host: q.host, Loopback: q.loopback, Scopes: q.scopes, Offers: offers,
		Writes: slices.Contains(q.scopes, string(auth.Write)), Operates: strings.HasSuffix(q.resource, auth.MCPOperatorPath),
	}
}

// remembered finds the one grant that holds all that a client asks for, where the person may still give it. It was made
// in a session that had shown a second factor if and only if this one has: a code of it stands for that session.
func (s *Service) remembered(
	ctx context.Context, person uuid.UUID, second bool, q request, offers []web.Offer,
) (id uuid.UUID, ok bool, err error) {
	type row struct{ ID, Organization, Project uuid.UUID }
	list, err := statement.All(ctx, s.DB, pgx.RowToStructByPos[row], `select id, organization_id, project_id
		from ops.oauth_grants where person_id = $1 and client_id = $2 and redirect_host = $3 and scopes @> $4
			and coalesce(second_factor, false) = $5 limit 2`, person, q.client.ID, q.host, q.scopes, second)
	if err != nil || len(list) != 1 {
		return uuid.Nil, false, err
	}
	if live, err := s.Access.LiveGrants(ctx, []uuid.UUID{list[0].ID}); err != nil || len(live) == 0 {
		return uuid.Nil, false, err
	}
	for _, o := range offers {
		for _, p := range o.Places {
			if p.Organization == list[0].Organization && p.Project == list[0].Project {
				return list[0].ID, len(both(q.scopes, p.Scopes)) == len(q.scopes), nil
			}
		}
	}
	return uuid.Nil, false, nil
}

// consent is the decision of the person.
func (s *Service) consent(r *web.Request) error {
	q, err := s.request(r)
	if err != nil {
		return err
	}
	if err := s.complete(&q); err != nil {
		return q.faulty(r, err)
	}
	switch r.Field("decision") {
	case "deny":
		return q.back(r, refuse(accessDenied, "the person refused").values())
	case "approve":
	default:
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, "decision is approve or deny")
	}
	offers, err := s.offers(r, q.resource)
	if err != nil {
		return err
	}
	if p, ok := r.Chosen(offers); ok {
		return s.approve(r, q, p)
	}
	return r.Invalid(fault.New(fault.Invalid, fault.CodeInvalidRequest, "choose an organization or a project"),
		"consent.html", shown(q, offers))
}

// approve records the decision, and then makes the grant and a code of it. What is asked for and what the person may
// give there is granted.
func (s *Service) approve(r *web.Request, q request, p web.Place) error {
	scopes := both(q.scopes, p.Scopes)
	if len(scopes) == 0 {
		return q.back(r, refuse(invalidScope, "the person may give none of these scopes there").values())
	}
	ctx, id := r.Context(), uuid.New()
	err := s.DB.QueryRow(ctx, `select id from ops.oauth_grants where person_id = $1 and organization_id = $2
		and project_id = $3 and client_id = $4 and redirect_host = $5`,
		r.Person.ID, p.Organization, p.Project, q.client.ID, q.host).Scan(&id)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("find a grant: %w", err)
	}
	approved := organization.GrantApproved{
		OrganizationID: p.Organization, MemberID: r.Person.ID, GrantID: id, ProjectID: p.Project, Scopes: scopes,
	}
	err = s.Commands.ApproveGrant(ctx, r.Command(), approved)
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeConflict { // ended with a former membership
		if _, err := s.DB.Exec(ctx, `delete from ops.oauth_grants where id = $1`, id); err != nil {
			return fmt.Errorf("delete an ended grant: %w", err)
		}
		id = uuid.New()
		approved.GrantID = id
		err = s.Commands.ApproveGrant(ctx, r.Command(), approved)
	}
	if err != nil {
		return err
	}
	if id, err = s.makeGrant(r, q, p, id, scopes); err != nil {
		return err
	}
	return s.answer(r, q, id, scopes)
}

// makeGrant makes a grant, or adds scopes to the one that is there. What was made without a second factor ends before
// the grant is made with one: its tokens must not pass for newer ones.
func (s *Service) makeGrant(r *web.Request, q request, p web.Place, id uuid.UUID, scopes []string) (uuid.UUID, error) {
	ctx := r.Context()
	err := pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		if s.Hold != nil {
			if live, err := s.Hold(ctx, tx, r.Session.ID); err != nil || !live {
				return cmp.Or(err, web.NotSignedIn())
			}
		}
		if r.Session.SecondFactor {
			_, err := tx.Exec(ctx, `delete from ops.oauth_grants where id = $1 and second_factor is not true`, id)
			if err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `update ops.oauth_clients set granted_at = $2 where id = $1`, q.client.ID, s.now()); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `insert into ops.oauth_grants
			(id, person_id, organization_id, project_id, client_id, client_name, redirect_host, scopes, approved_at,
				second_factor, client_key, redirect_key)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, sha256(convert_to($5, 'UTF8')), sha256(convert_to($7, 'UTF8')))
			on conflict (person_id, organization_id, project_id, client_key, redirect_key) do update set
				client_name = excluded.client_name, approved_at = excluded.approved_at, second_factor = excluded.second_factor,
				scopes = (select array_agg(distinct one order by one) from unnest(oauth_grants.scopes || excluded.scopes) one)
			returning id`, id, r.Person.ID, p.Organization, p.Project, q.client.ID, q.client.Name, q.host, scopes,
			s.now(), r.Session.SecondFactor).Scan(&id)
	})
	return id, wrap("make a grant", err)
}

// answer sends a code of a grant to the client.
func (s *Service) answer(r *web.Request, q request, grant uuid.UUID, scopes []string) error {
	code := newToken()
	_, err := s.DB.Exec(r.Context(), `insert into ops.oauth_codes
		(code, grant_id, family, redirect, challenge, resource, scopes, expires_at) values ($1, $2, $3, $4, $5, $6, $7, $8)`,
		hashOf(code), grant, uuid.New(), q.redirect, q.get("code_challenge"), q.resource, scopes, s.now().Add(codeLives))
	if err != nil {
		return fmt.Errorf("make a code: %w", err)
	}
	return q.back(r, url.Values{"code": {code}})
}
