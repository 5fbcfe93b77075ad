package authserver

import (
	"encoding/json"
	"net/http"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/auth"
)

// The grant types of the token endpoint.
const (
	grantCode    = "authorization_code"
	grantRefresh = "refresh_token"
	grantAgent   = "urn:ietf:params:oauth:grant-type:jwt-bearer"
)

// Metadata is the document of the authorization server (RFC 8414).
type Metadata struct {
	Issuer                string    `json:"issuer"`
	AuthorizationEndpoint string    `json:"authorization_endpoint"`
	TokenEndpoint         string    `json:"token_endpoint"`
	RegistrationEndpoint  string    `json:"registration_endpoint"`
	RevocationEndpoint    string    `json:"revocation_endpoint"`
	JWKSURI               string    `json:"jwks_uri"`
	Scopes                []string  `json:"scopes_supported"`
	ResponseTypes         []string  `json:"response_types_supported"`
	ResponseModes         []string  `json:"response_modes_supported"`
	GrantTypes            []string  `json:"grant_types_supported"`
	TokenAuthMethods      []string  `json:"token_endpoint_auth_methods_supported"`
	RevocationAuthMethods []string  `json:"revocation_endpoint_auth_methods_supported"`
	CodeChallengeMethods  []string  `json:"code_challenge_methods_supported"`
	ClientIDDocuments     bool      `json:"client_id_metadata_document_supported,omitempty"`
	AuthorizationIssuer   bool      `json:"authorization_response_iss_parameter_supported"`
	ServiceDocumentation  string    `json:"service_documentation"`
	AgentAuth             AgentAuth `json:"agent_auth"`
}

// AgentAuth is where agents register.
type AgentAuth struct {
	Skill              string   `json:"skill"`
	IdentityEndpoint   string   `json:"identity_endpoint"`
	ClaimEndpoint      string   `json:"claim_endpoint"`
	RevocationEndpoint string   `json:"revocation_endpoint"`
	IdentityTypes      []string `json:"identity_types_supported"`
}

// Metadata returns the document under the public addresses.
func (s *Service) Metadata() Metadata {
	at, none := s.URLs.Auth, []string{"none"}
	return Metadata{
		Issuer: at, AuthorizationEndpoint: at + "/oauth2/authorize", TokenEndpoint: at + "/oauth2/token",
		RegistrationEndpoint: at + "/oauth2/register", RevocationEndpoint: at + "/oauth2/revoke",
		JWKSURI: at + "/.well-known/jwks.json", Scopes: append(auth.Scopes(), offline),
		ResponseTypes: []string{"code"}, ResponseModes: []string{"query"},
		GrantTypes:       []string{grantCode, grantRefresh, grantAgent},
		TokenAuthMethods: none, RevocationAuthMethods: none, CodeChallengeMethods: []string{"S256"},
		ClientIDDocuments: s.Documents.On, AuthorizationIssuer: true, ServiceDocumentation: s.URLs.API + "/auth.md",
		AgentAuth: AgentAuth{
			Skill: s.URLs.API + "/auth.md", IdentityEndpoint: at + "/agent/identity",
			ClaimEndpoint: at + "/agent/identity/claim", RevocationEndpoint: at + "/oauth2/revoke",
			IdentityTypes: []string{"service_auth"},
		},
	}
}

func (s *Service) metadata(r *web.Request) error { return document(r, s.Metadata()) }

func (s *Service) jwks(r *web.Request) error {
	set, err := s.Keys.Set(r.Context())
	if err != nil {
		return err
	}
	return document(r, set)
}

func document(r *web.Request, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	h := r.Writer().Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "public, max-age=300")
	_, _ = r.Writer().Write(text) // a client that left reads no more
	return nil
}

// noDocument answers well-known paths that clients try: a page in HTML would confuse them.
func noDocument(r *web.Request) error {
	http.NotFound(r.Writer(), r.Request)
	return nil
}
