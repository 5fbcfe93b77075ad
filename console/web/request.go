package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/access"
)

// Request is a request for a page, with who sent it.
type Request struct {
	*http.Request

	// Session is zero, and Person too, where nobody is signed in.
	Session signin.Session
	Person  access.Person
	// Membership is that of the current organization.
	Membership access.Membership
	// Project is that of the path, zero for none.
	Project auth.Named

	site  *Site
	area  *area
	route Route
	w     http.ResponseWriter
	zone  *time.Location
	// files are those of the form, by field, and spool has what of them is not in memory, nil for nothing.
	files map[string][]File
	spool *os.File
	// browser is the person of a known browser whose session opens no organization, zero for none.
	browser uuid.UUID
	// shut reports a session that opens no organization, and guest a person who is a member of none.
	shut    bool
	guest   bool
	problem string
	status  int
	// form is the one that is sent, zero for none, and led reports that its answer leads to another page. gone reports
	// that what the page shows once was shown.
	form      formKey
	led, gone bool
	// unknown reports that it could not be found out who is signed in.
	unknown bool

	// program is who calls a route that identifies programs.
	program Program
	// base is the context of the connection, cancels end those of the request.
	base    context.Context //nolint:containedctx // of the one request
	cancels []context.CancelFunc
	// place is that of the work, memory what it reads and makes, holds are what the request has until its end.
	place, memory *allowance.Hold
	holds         []*allowance.Hold
}

// Codes of faults that only pages have.
const (
	codeForeignForm = "foreign-form"
	codeSignIn      = "sign-in"
	codeUnverified  = "address-not-verified"
)

// errAnswered ends a request that is answered.
var errAnswered = errors.New("answered")

func (r *Request) serve() error {
	r.base = r.Context()
	r.begin()
	defer r.end()
	defer r.closeFiles()
	if err := r.site.Admit(); err != nil {
		return err
	}
	if r.Method == http.MethodGet && !r.route.Public && r.site.isMisnamed(r.Host) {
		r.Redirect(r.site.URL + r.URL.RequestURI())
		return nil
	}
	err := r.identify()
	if err == nil {
		err = r.receive()
	}
	if err == nil {
		err = r.work()
	}
	if errors.Is(err, errAnswered) {
		return nil
	}
	return err
}

// begin gives the request the time of its page from now on.
func (r *Request) begin() {
	ctx, cancel := context.WithTimeout(r.base, cmp.Or(r.route.Time, pageTime))
	r.cancels = append(r.cancels, cancel)
	r.Request = r.WithContext(ctx)
}

// identify finds who sent the request, by what its headers hold.
func (r *Request) identify() (err error) {
	r.Session, r.Person, r.Membership = signin.Session{}, access.Person{}, access.Membership{}
	r.Project, r.shut, r.guest, r.browser = auth.Named{}, false, false, uuid.Nil
	switch {
	case r.route.Identify != nil:
		r.program, err = r.route.Identify(r)
		return err
	case r.route.Public:
		return nil
	}
	if err := r.site.sameOrigin(r.Request); err != nil {
		return err
	}
	if err := r.authenticate(); err != nil || r.inside() {
		return err
	}
	return r.recognize()
}

// recognize finds who signed in before, if the browser is known.
func (r *Request) recognize() error {
	known := r.site.Cookies.Value(r.Request, KnownCookie)
	if known == "" {
		return nil
	}
	done, err := r.LookUp()
	defer done()
	if err == nil {
		r.browser, err = r.site.Sessions.KnownBrowser(r.Context(), known)
	}
	return err
}

// work makes the answer of a request whose body is there.
func (r *Request) work() error {
	if err := r.enter(); err != nil {
		return err
	}
	if err := r.authorize(); err != nil {
		return err
	}
	r.remember()
	if r.Method == http.MethodPost && !r.route.Public {
		if err := r.readForm(); err != nil {
			return err
		}
		return r.serveForm()
	}
	return r.recorded()
}

// lookUpTime is the most time in which it is found out who is signed in, which takes milliseconds.
const lookUpTime = 5 * time.Second

// authenticate finds the session of the request and what its person is a member of.
func (r *Request) authenticate() (err error) {
	ctx, cancel := context.WithTimeout(r.Context(), lookUpTime)
	defer cancel()
	defer func() { r.unknown = err != nil }()
	token := r.site.Cookies.Value(r.Request, SessionCookie)
	if token == "" {
		return nil
	}
	done, err := r.LookUp()
	defer done()
	if err != nil {
		return err
	}
	session, ok, err := r.site.Sessions.Session(ctx, token)
	if err != nil || !ok {
		return err
	}
	person, ok, err := r.site.Access.Memberships(ctx, session.Person)
	if err != nil || !ok {
		return err
	}
	r.guest = len(person.Memberships) == 0
	person.Memberships = slices.DeleteFunc(person.Memberships, func(m access.Membership) bool {
		return !r.site.Sessions.Opens(session, m.Given, m.Organization)
	})
	if len(person.Memberships) == 0 {
		r.shut = true
		if r.route.Outside {
			r.Session, r.Person = session, person
		}
		return nil
	}
	r.Session, r.Person, r.Membership = session, person, person.Memberships[0]
	for _, m := range person.Memberships {
		if m.Organization == session.Organization {
			r.Membership = m
		}
	}
	return nil
}

// NotSignedIn is the fault of a form that needs a session.
func NotSignedIn() error {
	return fault.New(fault.Unauthenticated, codeSignIn, "%s", words.signInFirst)
}

// authorize decides whether the person may open the page, or leads to another one.
func (r *Request) authorize() error {
	elsewhere, err := r.decide()
	if err == nil && elsewhere != "" {
		r.Redirect(elsewhere)
		return errAnswered
	}
	if r.Method == http.MethodGet && r.Format() == "" && httpx.Fault(err).Code == fault.CodeProjectArchived {
		r.status, r.area = http.StatusForbidden, r.site.areas[0]
		return cmp.Or(r.write("archived.html", nil), errAnswered)
	}
	return err
}

// decide decides whether the person may open the page. elsewhere is where the person must go first.
func (r *Request) decide() (elsewhere string, err error) {
	if r.route.Needs == Nothing {
		return "", nil
	}
	if r.shut && r.route.Outside {
		return "", nil
	}
	if r.guest && r.Method == http.MethodGet {
		return "/offers", nil
	}
	if r.guest {
		return "", fault.New(fault.Forbidden, fault.CodeInsufficientScope, "%s", words.guest)
	}
	if r.shut {
		return "", fault.New(fault.Forbidden, codeUnverified, "%s", words.unverified)
	}
	if !r.SignedIn() {
		if r.Method != http.MethodGet {
			return "", NotSignedIn()
		}
		return "/sign-in?next=" + url.QueryEscape(r.URL.RequestURI()), nil
	}
	if slug := r.PathValue("project"); slug != "" {
		if err := r.findProject(slug); err != nil {
			return "", err
		}
	}
	// The project may be of another organization than the current one, which has its own rule.
	if r.Membership.SecondFactor && !r.Session.SecondFactor && !r.route.Unguarded {
		return "/account/second-factor", nil
	}
	if r.Audits() && r.route.Auditors == AuditedTexts && !r.SeesTexts() {
		return "", NoTexts()
	}
	if !r.mayOpen(r.route) {
		return "", fault.New(fault.Forbidden, fault.CodeInsufficientScope, words.needs, r.route.Needs)
	}
	if r.route.Live && r.Project.Archived {
		return "", fault.New(fault.Forbidden, fault.CodeProjectArchived, "project %s is archived", r.Project.Project.Slug)
	}
	return "", nil
}

// again decides whether the person may still have what the request is answered with. Answers that take long ask it
// while they are written.
func (r *Request) again() error {
	if r.route.Needs == Nothing {
		return nil
	}
	now := &Request{Request: r.Request, site: r.site, area: r.area, route: r.route, w: r.w}
	if err := now.authenticate(); err != nil {
		return err
	}
	elsewhere, err := now.decide()
	if err != nil {
		return err
	}
	if elsewhere != "" || now.Person.ID != r.Person.ID || now.Membership.Organization != r.Membership.Organization {
		return fault.New(fault.Forbidden, fault.CodeInsufficientScope, "the person may not read this any more")
	}
	return nil
}

// findProject finds the project of the path. To who may not read it, it does not exist.
func (r *Request) findProject(slug string) error {
	for _, m := range r.candidates() {
		p, ok, err := r.site.Access.ProjectNamed(r.Context(), m.Organization, slug)
		if err != nil {
			return err
		}
		if ok && sees(m, p.Project.ID) {
			r.Membership, r.Project = m, p
			return nil
		}
	}
	return fault.New(fault.NotFound, fault.CodeNotFound, "there is no project %q", slug)
}

// maxCandidates bounds in how many organizations a link to a project is looked for.
const maxCandidates = 10

// candidates are the organizations of the person, the current one first.
func (r *Request) candidates() []access.Membership {
	list := []access.Membership{r.Membership}
	for _, m := range r.Person.Memberships {
		if m.Organization != r.Membership.Organization && len(list) < maxCandidates {
			list = append(list, m)
		}
	}
	return list
}

// SignedIn reports whether the request has a session.
func (r *Request) SignedIn() bool { return r.Person.ID != uuid.Nil }

// May reports whether the person may open what needs that, in the current organization and project.
func (r *Request) May(n Needs) bool {
	if n.OfProject() && r.Project.Project.ID == uuid.Nil {
		return false
	}
	return allows(r.Membership, r.Membership.Access[r.Project.Project.ID], n)
}

// Caller is the network address of the person, or of the network of IPv6; invalid if it is not known.
func (r *Request) Caller() netip.Addr { return r.site.Proxies.Caller(r.Request) }

// Program is who calls a route that identifies programs.
func (r *Request) Program() Program { return r.program }

// ID is the id of the request.
func (r *Request) ID() uuid.UUID {
	id, _ := uuid.Parse(r.w.Header().Get("X-Request-Id"))
	return id
}

// Now is the time of the service.
func (r *Request) Now() time.Time { return instant.Truncate(r.site.Now()) }

func (r *Request) principal() auth.Principal {
	if !r.SignedIn() {
		return auth.Principal{}
	}
	return auth.Principal{
		Kind: auth.Person, KeyID: r.Person.ID, KeyName: "console", OrganizationID: r.Membership.Organization,
		Project: r.Project.Project,
		Limits: metering.Caps{
			Plan: r.Membership.Plan, SpendCapTenths: r.Membership.SpendCapTenths,
			IngestionCap: r.Project.IngestionCap, CreditCapTenths: r.Project.CreditCapTenths,
		},
	}
}

// Command is the call of a command by the person, in the project of the path.
func (r *Request) Command() engine.Call {
	return engine.Call{Principal: r.principal(), RequestID: r.ID(), ReceivedAt: r.Now()}
}

// Cookies are the names of the cookies of the console.
func (r *Request) Cookies() Cookies { return r.site.Cookies }

// Writer is the response, for cookies and streams.
func (r *Request) Writer() http.ResponseWriter { return r.w }

// Redirect sends the browser to another page of the console (303).
func (r *Request) Redirect(path string) {
	r.leads(path)
	http.Redirect(r.w, r.Request, path, http.StatusSeeOther)
}

// Done redirects after a change, and has the next page say what was done: key is one of words.
func (r *Request) Done(path, key string) error {
	u, err := url.Parse(path)
	if err != nil {
		return err
	}
	query := u.Query()
	query.Set("done", key)
	u.RawQuery = query.Encode()
	r.Redirect(u.String())
	return nil
}

// Did ends a change as Done does, or returns why it failed.
func (r *Request) Did(err error, path, key string) error {
	if err != nil {
		return err
	}
	return r.Done(path, key)
}

// places are what the requests of a site share, in turn between organizations and between the addresses of visitors. A
// place is held for work alone: bodies arrive before it is taken, and answers are read after it was returned. What is
// held meanwhile is counted in bytes, and a peer that is silent gives way to others.
type places struct {
	sessions, visitors, browsers, pages, tools, exports *allowance.Allowance
	visiting, forms, longForms, unread                  *allowance.Allowance
}

func newPlaces() places {
	return places{
		sessions: admission.Sessions.New(), visitors: admission.Visitors.New(), browsers: admission.Known.New(),
		pages: admission.Pages.New(), tools: admission.Tools.New(), exports: admission.Exports.New(),
		visiting: admission.Visiting.New(), forms: admission.Forms.New(), longForms: admission.LongForms.New(),
		unread: admission.Unread.New(),
	}
}

// Shared is something that the requests of a site share.
type Shared struct {
	*allowance.Allowance

	// Class names it in the metrics. Bytes is true if its unit is a byte, not a place.
	Class string
	Bytes bool
}

// Shared lists what the requests share.
func (s *Site) Shared() []Shared {
	p := s.places
	return []Shared{
		{p.sessions, "sessions", false},
		{p.visitors, "visitors", false},
		{p.browsers, "known-browsers", false},
		{p.pages, "pages", false},
		{p.tools, "tools", false},
		{p.exports, "exports", false},
		{p.visiting, "visitors-bodies", true},
		{p.forms, "forms", true},
		{p.longForms, "long-forms", true},
		{p.unread, "unread", true},
	}
}

// owner is who shares: an organization once it is known, else the person of a known browser, or all of one address.
func (r *Request) owner() allowance.Owner {
	switch {
	case r.known():
		return r.program.Owner
	case r.inside():
		return allowance.Owner{Organization: r.Membership.Organization}
	case r.browser != uuid.Nil:
		return allowance.Owner{Organization: r.browser}
	default:
		return r.visitor()
	}
}

// known reports whether the request is of a program whose organization is known.
func (r *Request) known() bool { return r.program.Owner != allowance.Owner{} }

// inside reports whether the session opens an organization. Who is outside shares what visitors and known browsers do.
func (r *Request) inside() bool { return r.SignedIn() && !r.shut }

// visitor is who shares as long as no organization is known: all of one address.
func (r *Request) visitor() (o allowance.Owner) {
	if caller := r.Caller(); caller.IsValid() {
		o.Organization = caller.As16()
	}
	return o
}

// enter takes a place for a request whose caller is known, or known to be nobody. leave returns it.
func (r *Request) enter() error {
	among := r.site.places.visitors
	switch {
	case r.known():
		among = r.site.places.tools
	case r.inside():
		among = r.site.places.pages
	case r.browser != uuid.Nil:
		among = r.site.places.browsers
	}
	r.place = among.Open(r.owner())
	return r.place.Reserve(r.Context(), 1)
}

func (r *Request) leave() { r.place.Release() }

// open opens a hold that lasts until the end of the request.
func (r *Request) open(of *allowance.Allowance) *allowance.Hold {
	hold := of.Open(r.owner())
	r.holds = append(r.holds, hold)
	return hold
}

// end returns all that the request holds.
func (r *Request) end() {
	r.leave()
	for _, hold := range r.holds {
		hold.Release()
	}
	for _, cancel := range r.cancels {
		cancel()
	}
}

// LookUp takes a short place to find who has a credential. The caller calls done.
func (r *Request) LookUp() (done func(), err error) {
	place := r.site.places.sessions.Open(r.visitor())
	return place.Release, place.Reserve(r.Context(), 1)
}
