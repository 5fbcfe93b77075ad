package web

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/klauspost/compress/gzhttp"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/keylock"
	"github.com/annals-project/annals/internal/visits"
	"github.com/annals-project/annals/projections/access"
)

// Config is what a Site needs.
type Config struct {
	// URL is the public address of the console, without a trailing slash.
	URL      string
	Sessions interface {
		// Session finds the session of a token.
		Session(ctx context.Context, token string) (signin.Session, bool, error)
		// KnownBrowser finds a person of a known browser by its cookie, zero for none.
		KnownBrowser(ctx context.Context, cookie string) (uuid.UUID, error)
		// Opens reports whether a session opens an organization, whose membership was given to an address.
		Opens(session signin.Session, given string, organization uuid.UUID) bool
	}
	// Access finds what a person may do now.
	Access interface {
		Memberships(ctx context.Context, person uuid.UUID) (access.Person, bool, error)
		ProjectNamed(ctx context.Context, organizationID uuid.UUID, slug string) (auth.Named, bool, error)
	}
	Cookies Cookies
	// Forms keep what forms leave; nil spends no form, and shows nothing once.
	Forms Forms
	// Proxies are those that are trusted to name who calls them.
	Proxies httpx.Proxies
	// Answers are the bytes of answers of the API, which pages share; nil bounds nothing.
	Answers *allowance.Allowance
	// Reads records what people are shown of the projects that want it; nil records nothing.
	Reads httpx.Reads
	// Visited records what a person did without a change; nil for nothing.
	Visited func(ctx context.Context, e visits.Entry) error
	// Admit refuses requests until the service is ready.
	Admit    func() error
	Instance Instance
	Logger   *slog.Logger
	Now      func() time.Time
}

// Site serves the pages of the console.
type Site struct {
	Config

	mux *http.ServeMux
	// handler compresses what mux serves.
	handler http.Handler
	areas   []*area
	routes  []Route
	// paths are the patterns of pages that can be linked, for the navigation.
	paths  map[string]Route
	static static
	places places
	// sending are the forms that are being sent.
	sending keylock.Map[formKey]
}

// New makes a site of areas. A template that does not parse is an error.
func New(cfg Config, areas []Area) (*Site, error) {
	files, err := newStatic()
	if err != nil {
		return nil, err
	}
	s := &Site{Config: cfg, mux: http.NewServeMux(), paths: map[string]Route{}, static: files, places: newPlaces()}
	for _, a := range append([]Area{{Templates: layouts}}, areas...) {
		own, err := s.parse(a.Templates)
		if err != nil {
			return nil, err
		}
		s.areas = append(s.areas, own)
		for _, route := range a.Routes {
			s.handle(own, route)
		}
	}
	s.mux.Handle("GET /static/{sum}/{file}", files)
	s.handler = gzhttp.GzipHandler(http.HandlerFunc(s.serve))
	return s, nil
}

// Routes are all routes of the areas, for tests of who may open what.
func (s *Site) Routes() []Route { return s.routes }

func (s *Site) handle(own *area, route Route) {
	s.routes = append(s.routes, route)
	if path, ok := strings.CutPrefix(route.Pattern, "GET "); ok {
		s.paths[path] = route
	}
	s.mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) {
		req := &Request{Request: r, w: w, site: s, area: own, route: route}
		if note := noteOf(r); note != nil {
			_, note.Route, _ = strings.Cut(route.Pattern, " ")
			defer func() { note.Principal = req.principal() }()
		}
		if err := req.serve(); err != nil {
			req.fail(err)
		}
	})
}

// Serve writes the answer to a request. It is an httpx.Site.
func (s *Site) Serve(w http.ResponseWriter, r *http.Request, note *httpx.PageNote) error {
	s.handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), noteKey{}, note)))
	return nil
}

func (s *Site) serve(w http.ResponseWriter, r *http.Request) {
	if _, pattern := s.mux.Handler(r); pattern != "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	req := &Request{Request: r, w: w, site: s, area: s.areas[0]}
	if err := req.authenticate(); err != nil {
		s.Logger.WarnContext(r.Context(), "session not found for a page that does not exist", "err", err)
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := s.mux.Handler(other); pattern != "" && method != r.Method {
			w.Header().Set("Allow", method)
			req.fail(fault.New(fault.MethodNotAllowed, fault.CodeMethodNotAllowed, "this page has no %s", r.Method))
			return
		}
	}
	req.fail(fault.New(fault.NotFound, fault.CodeNotFound, "there is no such page"))
}

type noteKey struct{}

func noteOf(r *http.Request) *httpx.PageNote {
	note, _ := r.Context().Value(noteKey{}).(*httpx.PageNote)
	return note
}

// sameOrigin refuses a change that another site could have made the browser send.
func (s *Site) sameOrigin(r *http.Request) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if origin == OriginOf(s.URL) {
			return nil
		}
	} else if r.Header.Get("Sec-Fetch-Site") == "same-origin" {
		return nil
	}
	return fault.New(fault.Forbidden, codeForeignForm, words.foreignForm, s.URL)
}

// isMisnamed reports that a browser on this machine calls the console by another name of the machine than its address:
// its forms would be refused.
func (s *Site) isMisnamed(host string) bool {
	u, err := url.Parse(s.URL)
	return err == nil && u.Host != host && isOwn(u.Host) && isOwn(host) && portOf(u.Host) == portOf(host)
}

// isOwn reports a name of this machine.
func isOwn(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	address, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && address.IsLoopback()
}

func portOf(host string) string { return (&url.URL{Host: host}).Port() }

// OriginOf is the origin of a URL as browsers write it.
func OriginOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	host := u.Host
	if u.Scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	} else {
		host = strings.TrimSuffix(host, ":80")
	}
	return u.Scheme + "://" + strings.ToLower(host)
}

// fault returns what an error shows to a person, and logs what only an operator may see.
func (s *Site) fault(r *Request, err error) *fault.Error {
	f := httpx.Fault(err)
	if f.Kind == fault.Internal && !errors.Is(err, context.Canceled) {
		s.Logger.ErrorContext(r.Context(), "page failed", "requestId", r.ID(), "route", r.route.Pattern, "err", err)
	}
	return f
}

//go:embed static
var staticFiles embed.FS

// static serves the style, the scripts and the icon below a path that holds their sum, so that browsers keep them.
type static struct{ sum string }

func newStatic() (static, error) {
	files, err := staticFiles.ReadDir("static")
	all := sha256.New()
	for _, file := range files {
		content, readErr := staticFiles.ReadFile("static/" + file.Name())
		if readErr != nil {
			return static{}, readErr
		}
		all.Write(content)
	}
	return static{hex.EncodeToString(all.Sum(nil)[:6])}, err
}

func (s static) url(file string) string { return "/static/" + s.sum + "/" + file }

// ServeHTTP implements http.Handler.
func (s static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("sum") != s.sum {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeFileFS(w, r, staticFiles, "static/"+r.PathValue("file"))
}

// Instance distinguishes one deployment from another, such as staging from production. Both may be empty.
type Instance struct{ Name, Colour string }

// maxInstance is the most characters of the name of an instance, which has one line of a phone.
const maxInstance = 40

// colours are those that app.css has.
var colours = []string{"", "red", "amber", "green", "blue"}

// Check returns why an instance cannot be shown, and which of NAME and COLOUR is wrong.
func (i Instance) Check() (setting string, err error) {
	switch {
	case !slices.Contains(colours, i.Colour):
		return "COLOUR", fmt.Errorf("is %q: want red, amber, green or blue", i.Colour)
	case i.Colour != "" && i.Name == "":
		return "NAME", fmt.Errorf("is not set, but ANNALS_INSTANCE_COLOUR is: there is no name to colour")
	case utf8.RuneCountInString(i.Name) > maxInstance, !utf8.ValidString(i.Name),
		strings.ContainsFunc(i.Name, unicode.IsControl):
		return "NAME", fmt.Errorf("is %q: want one line of at most %d characters", i.Name, maxInstance)
	}
	return "", nil
}

// Cookies names the cookies of a console. Over https they are bound to the host (__Host-). The names hold the id of the
// log, so that two consoles on one host do not end each other's sessions.
type Cookies struct{ prefix string }

// NewCookies makes the names for the public address of a console and the id of its log.
func NewCookies(address string, log uuid.UUID) Cookies {
	prefix := "annals-" + log.String()[:8] + "-"
	if strings.HasPrefix(address, "https:") {
		prefix = "__Host-" + prefix
	}
	return Cookies{prefix}
}

// Value returns the value of a cookie of a request, "" for none.
func (c Cookies) Value(r *http.Request, name string) string {
	cookie, err := r.Cookie(c.prefix + name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// Set sets a cookie that scripts cannot read, for some time; 0 ends it.
func (c Cookies) Set(w http.ResponseWriter, name, value string, lives time.Duration) {
	cookie := &http.Cookie{
		Name: c.prefix + name, Value: value, Path: "/", MaxAge: int(lives.Seconds()), HttpOnly: true,
		SameSite: http.SameSiteLaxMode, Secure: strings.HasPrefix(c.prefix, "__Host-"),
	}
	if lives <= 0 {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// SessionCookie is the name of the cookie with the token of a session.
const SessionCookie = "session"

// KnownCookie is the name of the cookie with the marks of a known browser. It stays after the session.
const KnownCookie = "known"
