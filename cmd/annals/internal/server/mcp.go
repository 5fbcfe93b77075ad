package server

import (
	"context"
	"errors"

	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/console/mcp"
	"github.com/annals-project/annals/internal/build"
	"github.com/annals-project/annals/readapi"
)

// newMCP makes the server of the Model Context Protocol.
func (s *Server) newMCP() (*mcp.Service, error) {
	origins, err := mcp.ParseOrigins(s.cfg.MCPOrigins)
	if err != nil {
		return nil, err
	}
	return mcp.New(mcp.Config{
		URLs: s.urls, Origins: origins, Version: build.Version, Document: readapi.OpenAPI, API: s.inner,
		Keys:   s.read.keys,
		Tokens: s.grantOf, Access: s.read.access, Identities: s.write.service, DataPoints: s.read.dataPoints,
		Texts: s.recall.recall, Reads: s.reads, Reaches: s.read.directory.Belongs,
		Readers: s.read.directory.Readers, HashKey: s.hashKey, Logger: s.cfg.Logger,
	})
}

// grantOf finds the grant of a token of a person.
func (s *Server) grantOf(ctx context.Context, token string) (mcp.Grant, bool, error) {
	g, err := s.authServer.Authenticate(ctx, token)
	if errors.Is(err, authserver.ErrToken) {
		return mcp.Grant{}, false, nil
	}
	return mcp.Grant{
		Person: g.Person, Organization: g.Organization, Project: g.Project, ClientName: g.ClientName,
		Resource: g.Resource, Scopes: g.Scopes,
	}, err == nil, err
}
