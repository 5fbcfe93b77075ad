package server

import (
	"context"

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
		Tokens: s.grantOf, Access: s.read.access, Identities: s.write.service, Authors: s.read.dataPoints.Authors,
		Logger: s.cfg.Logger,
	})
}

// grantOf finds the grant of a token of a person.
func (s *Server) grantOf(context.Context, string) (mcp.Grant, bool, error) {
	return mcp.Grant{}, false, nil
}
