// Package mcp serves the Model Context Protocol at /mcp: agents recall and remember by tools. A tool calls the API in
// the process, so that it is admitted, charged, logged and limited as a call from outside. A caller has the key of a
// project, or the token of a person who lets a client act for her; each request reads what that person may do now.
package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/mcpguard"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/recall"
)

// maxBody is the most bytes of a request: 1 MiB of content may be 3 MiB of escapes.
const maxBody = 4 << 20

// requestTime is the most time of a request once its body is there, with its answer.
const requestTime = callTime + 30*time.Second

// Config is what a Service needs.
type Config struct {
	URLs auth.URLs
	// Origins may call besides the console, as browsers name them.
	Origins []string
	Version string
	// Document is the document of the API.
	Document []byte
	API      httpx.Inner
	Keys     auth.Keys
	// Tokens finds the grant of a token of a person. ok is false for one that is unknown, expired or revoked.
	Tokens func(ctx context.Context, token string) (g Grant, ok bool, err error)
	// Access finds what a person may do now.
	Access interface {
		Memberships(ctx context.Context, person uuid.UUID) (access.Person, bool, error)
		Projects(ctx context.Context, organization uuid.UUID) ([]access.Project, error)
		OrganizationByID(ctx context.Context, id uuid.UUID) (access.Organization, bool, error)
	}
	// Identities records people who recall and send.
	Identities interface {
		EnsureSignedIn(ctx context.Context, call engine.Call, name string) error
	}
	DataPoints interface {
		// Authors returns the authors of live data points, by their source ids.
		Authors(ctx context.Context, project auth.Project, sources []string) (map[string]string, error)
		Brought(ctx context.Context, project auth.Project, send uuid.UUID) ([]datapoints.Brought, bool, error)
	}
	// Texts reads the texts that an identity may recall.
	Texts interface {
		Text(ctx context.Context, q recall.TextQuery) (recall.Text, error)
		Newest(ctx context.Context, q recall.NewestQuery) (texts []recall.Text, left int, err error)
	}
	// Reads records what callers are shown of the projects that want it; nil records nothing.
	Reads httpx.Reads
	// Reaches reports whether an identity belongs to an audience.
	Reaches func(ctx context.Context, project auth.Project, identity, audience string) (bool, error)
	// Readers names who reads what is in an audience: its slug, or the identity that it is private to.
	Readers func(ctx context.Context, project auth.Project, of uuid.UUID) (slug, identity string, err error)
	// HashKey is the key of the ids that texts get.
	HashKey []byte
	Logger  *slog.Logger
}

// Service is the server.
type Service struct {
	Config

	keys *auth.Authenticator
	// servers have the tools that callers of each kind are shown.
	servers map[view]*sdk.Server
	// tools are those of each path.
	tools   map[string]map[string]tool
	handler http.Handler
}

// New makes the server. An API document without a route of a tool is an error.
func New(cfg Config) (*Service, error) {
	s := &Service{
		Config: cfg, keys: auth.NewAuthenticator(cfg.Keys),
		servers: map[view]*sdk.Server{}, tools: map[string]map[string]tool{},
	}
	document, err := newContract(cfg.Document)
	if err != nil {
		return nil, err
	}
	for _, v := range views() {
		s.servers[v] = newServer(cfg, v)
		s.servers[v].AddReceivingMiddleware(mcpguard.New(cfg.Logger))
	}
	for _, path := range auth.MCPPaths() {
		s.tools[path] = map[string]tool{}
		for _, t := range tools(path) {
			if err := s.add(document, path, t); err != nil {
				return nil, err
			}
		}
	}
	if err := s.addResources(document); err != nil {
		return nil, err
	}
	s.handler = mcpguard.Handler(sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		return s.servers[callOf(r.Context()).view()]
	}, &sdk.StreamableHTTPOptions{
		// Without sessions any process answers any request. A proxy on this host sends the name that clients use, which the
		// SDK would refuse; crossOrigin keeps foreign pages out.
		Stateless: true, JSONResponse: true, DisableLocalhostProtection: true, PropagateRequestCancellation: true,
		MaxRequestBodyBytes: maxBody, Logger: slog.New(slog.DiscardHandler),
	}))
	return s, nil
}

// oldest is the first protocol version that is spoken.
const oldest = "2025-06-18"

func newServer(cfg Config, v view) *sdk.Server {
	versions := slices.DeleteFunc(sdk.SupportedProtocolVersions(), func(v string) bool { return v < oldest })
	return sdk.NewServer(
		&sdk.Implementation{Name: "memory", Title: "Annals", Version: cfg.Version, WebsiteURL: cfg.URLs.Console},
		&sdk.ServerOptions{
			Instructions: v.instructions(), SupportedProtocolVersions: versions,
			// Nothing is announced later, so a client that listens is answered at once.
			Capabilities: &sdk.ServerCapabilities{
				Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}, Prompts: &sdk.PromptCapabilities{},
			},
			// A list is what one caller may use. A text may be deleted at any moment, so no client keeps it.
			SetCacheable: func(_ context.Context, r sdk.Request, c *sdk.Cacheable) {
				c.TTLMs, c.CacheScope = 60_000, "private"
				if _, reads := r.(*sdk.ReadResourceRequest); reads {
					c.TTLMs = 0
				}
			},
		})
}

// add adds a tool of a path to the servers of its scope.
func (s *Service) add(document contract, path string, t tool) error {
	op := operation{fields: map[string]field{}}
	if t.route != "" {
		var err error
		if op, err = document.operation(t.route); err != nil {
			return err
		}
	}
	s.tools[path][t.name] = t
	no := false
	for v, server := range s.servers {
		if v.path != path || !v.has(t.scope) {
			continue
		}
		input, err := t.input(op, v)
		if err != nil {
			return err
		}
		server.AddTool(&sdk.Tool{
			Name: t.name, Title: t.title, Description: t.description + v.readersText(t), InputSchema: input,
			OutputSchema: t.output(op),
			Annotations: &sdk.ToolAnnotations{
				Title: t.title, ReadOnlyHint: !t.changes, DestructiveHint: &t.destructive, IdempotentHint: t.repeatable,
				OpenWorldHint: &no,
			},
		}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return s.run(ctx, t, op, input, r.Params.Arguments), nil
		})
	}
	return nil
}

// Area returns the routes.
func (s *Service) Area() web.Area {
	var routes []web.Route
	for _, path := range auth.MCPPaths() {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			routes = append(routes, web.Route{
				Pattern: method + " " + path, Public: true, Body: maxBody, Time: requestTime,
				Identify: s.identify, Refuse: s.refuse, Serve: s.serve,
			})
		}
		routes = append(routes, web.Route{Pattern: "OPTIONS " + path, Public: true, Refuse: s.refuse, Serve: s.preflight})
	}
	return web.Area{Routes: routes}
}

type callKey struct{}

// incoming is a request with who sent it.
type incoming struct {
	caller *caller
	// path is the one of auth.MCPPaths that was called.
	path string
	// command is that of the request, without its principal.
	command  engine.Call
	reserved *reservations
	request  context.Context //nolint:containedctx // of the one request, which the SDK detaches its calls from
}

func callOf(ctx context.Context) incoming {
	call, _ := ctx.Value(callKey{}).(incoming)
	return call
}

// identify finds who calls, before anything of the request is looked at: a client looks for a 401. A caller shares
// the places of its organization: the clients of a hosted assistant come from few addresses.
func (s *Service) identify(r *web.Request) (web.Program, error) {
	if err := s.crossOrigin(r); err != nil {
		return web.Program{}, err
	}
	c, err := s.authenticate(r, r.URL.Path)
	if err != nil {
		return web.Program{}, err
	}
	o := allowance.Owner{Organization: c.principal.OrganizationID, Project: c.principal.Project.ID}
	if !c.isKey() {
		o.Project = c.person.ID
	}
	return web.Program{Owner: o, Caller: c}, nil
}

// serve answers a request of a known caller, whose body has arrived.
func (s *Service) serve(r *web.Request) error {
	c, _ := r.Program().Caller.(*caller)
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		if err := s.check(r.URL.Path, c, body); err != nil {
			return err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	reserved := &reservations{}
	defer reserved.use()()
	ctx := context.WithValue(r.Context(), callKey{}, incoming{c, r.URL.Path, r.Command(), reserved, r.Context()})
	r.Writer().Header().Set("X-Content-Type-Options", "nosniff")
	return r.Buffered(s.handler, r.WithContext(ctx))
}

// check refuses what the SDK would not: several messages in one, and a tool whose scope a token lacks, which its client
// can ask for.
func (s *Service) check(path string, c *caller, body []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, "send one message at a time")
	}
	var message struct {
		Method string `json:"method"`
		Params struct {
			Name string `json:"name"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &message) != nil || message.Method != "tools/call" {
		return nil // the SDK answers
	}
	if t, ok := s.tools[path][message.Params.Name]; ok && !c.has(t.scope) {
		return lacks(t.scope, t.name)
	}
	return nil
}

// refuse answers a request that is refused as a whole.
func (s *Service) refuse(r *web.Request, err error) error {
	f := s.fault(r.Context(), r.URL.Path, err)
	header := r.Writer().Header()
	metadata := `resource_metadata="` + s.URLs.Console + auth.AnyResourcePath + r.URL.Path + `"`
	scopes := `, scope="` + strings.Join(auth.MCPScopes(r.URL.Path), " ") + `"`
	_, token := oauthToken(r.Header)
	lacking, lacks := errors.AsType[scopeError](err)
	switch {
	case f.Kind == fault.Unauthenticated && token:
		header.Set("WWW-Authenticate", `Bearer error="invalid_token", `+metadata+scopes)
	case f.Kind == fault.Unauthenticated:
		header.Set("WWW-Authenticate", `Bearer `+metadata+scopes)
	case lacks:
		header.Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+string(lacking.scope)+`", `+metadata)
	case f.Kind == fault.Unavailable:
		header.Set("Retry-After", "2")
	}
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	status := httpStatus(f)
	r.Writer().WriteHeader(status)
	return json.NewEncoder(r.Writer()).Encode(httpx.Envelope{
		Code: f.Code, Status: status, DebugMessage: f.Msg, Data: map[string]any{},
	})
}

// maxOrigins bounds how many origins each request is compared with.
const maxOrigins = 64

// ParseOrigins reads origins such as https://inspector.example, separated by commas. An empty text is none.
func ParseOrigins(text string) ([]string, error) {
	var origins []string
	for origin := range strings.SplitSeq(text, ",") {
		if origin = strings.TrimSpace(origin); origin == "" {
			continue
		}
		if web.OriginOf(origin) != origin || !strings.HasPrefix(origin, "http") {
			return nil, fmt.Errorf("names %q: want origins such as https://inspector.example.com", origin)
		}
		origins = append(origins, origin)
	}
	if len(origins) > maxOrigins {
		return nil, fmt.Errorf("names %d origins: want at most %d", len(origins), maxOrigins)
	}
	return origins, nil
}

// crossOrigin lets browsers call from the pages of the console and of the origins that the operator names.
func (s *Service) crossOrigin(r *web.Request) error {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	if len(origins) > 1 || origins[0] != web.OriginOf(s.URLs.Console) && !slices.Contains(s.Origins, origins[0]) {
		return fault.New(fault.Forbidden, fault.CodeCORSRefused, "requests from this origin are refused")
	}
	header := r.Writer().Header()
	header.Set("Access-Control-Allow-Origin", origins[0])
	header.Set("Access-Control-Expose-Headers", "WWW-Authenticate, Mcp-Session-Id")
	header.Add("Vary", "Origin")
	return nil
}

// preflight answers what a browser asks before it calls.
func (s *Service) preflight(r *web.Request) error {
	if err := s.crossOrigin(r); err != nil {
		return err
	}
	header := r.Writer().Header()
	header.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	header.Set("Access-Control-Allow-Headers",
		"Authorization, Content-Type, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id, "+IdentityHeader)
	header.Set("Access-Control-Max-Age", "600")
	r.Writer().WriteHeader(http.StatusNoContent)
	return nil
}
