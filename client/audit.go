package annals

import (
	"context"
	"io"
	"net/http"
	"net/url"
)

// TileRequest names a tile of the audit log of an organization, as C2SP tlog-tiles does.
type TileRequest struct {
	Organization string
	// Level is that of the tile from 0 on, or "entries".
	Level string
	// Path is its number, such as "x001/067", and ".p/" with its width if it is not full.
	Path string
}

// ProofsRequest names what is to be proved: one of the ids.
type ProofsRequest struct {
	Organization string
	// Ingestion, Source, Request and Deletion are the ids of a send, of a data point, of a call and of a deletion.
	Ingestion, Source, Request, Deletion string
	// Project is the slug of the project.
	Project string
}

// GetCheckpoint returns the newest signed checkpoint of the audit log of an organization. It and the other reads of the
// audit log need the management key, unless the deployment publishes its audit log.
func (c *Client) GetCheckpoint(ctx context.Context, organization string) ([]byte, error) {
	return c.bytes(ctx, path("audit", organization, "checkpoint"), nil)
}

// GetAuditPolicy returns the public keys that verify the audit log of an organization, as a tlog-policy file.
func (c *Client) GetAuditPolicy(ctx context.Context, organization string) ([]byte, error) {
	return c.bytes(ctx, path("audit", organization, "policy"), nil)
}

// GetTile returns a tile of the audit log.
func (c *Client) GetTile(ctx context.Context, what TileRequest) ([]byte, error) {
	return c.bytes(ctx, path("audit", what.Organization, "tile", what.Level, what.Path), nil)
}

// GetProofs returns a zip file of proofs, one for each event of what is proved. It needs the management key.
func (c *Client) GetProofs(ctx context.Context, what ProofsRequest) ([]byte, error) {
	query := params{}
	query.text("ingestion", what.Ingestion)
	query.text("source", what.Source)
	query.text("request", what.Request)
	query.text("deletion", what.Deletion)
	query.text("project", what.Project)
	return c.bytes(ctx, path("audit", what.Organization, "proofs"), url.Values(query))
}

// bytes reads an answer that is no JSON.
func (c *Client) bytes(ctx context.Context, path string, query url.Values) (answer []byte, err error) {
	read := func(body io.Reader) error {
		answer, err = io.ReadAll(&bounded{body, maxResponse})
		return err
	}
	_, err = c.do(ctx, call{method: http.MethodGet, path: path, query: query, repeat: safe, read: read})
	return answer, err
}
