package annals

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"
)

// Project is a project of an organization. Caps are nil if none is set.
type Project struct {
	Slug         string `json:"slug"`
	Name         string `json:"name"`
	Description  string `json:"description"`
	IsArchived   bool   `json:"isArchived"`
	MemoryCount  int64  `json:"memoryCount"`
	IngestionCap *int64 `json:"ingestionCap"`
	// MonthIngestions counts the data points of the current calendar month in UTC, MonthCredits their credits, nil if
	// nothing is metered.
	MonthIngestions int64        `json:"monthIngestions"`
	CreditCap       *json.Number `json:"creditCap"`
	MonthCredits    *json.Number `json:"monthCredits"`
	CreatedAt       time.Time    `json:"createdAt"`
}

// ProjectList is all projects of an organization.
type ProjectList struct {
	Projects []Project `json:"projects"`
}

// NewProject is a project to create. Its slug is made from the name.
type NewProject struct {
	Name string `json:"name"`
}

// NewProjectKey is a key to create.
type NewProjectKey struct {
	// Project is the slug of its project.
	Project string `json:"-"`
	Name    string `json:"name"`
}

// ProjectKey is a key of a project.
type ProjectKey struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	KeyPrefix string    `json:"keyPrefix"`
	KeySuffix string    `json:"keySuffix"`
	CreatedAt time.Time `json:"createdAt"`
	// Key is the clear value. Only the creation returns it.
	Key string `json:"key"`
}

// ListProjects returns the projects, archived ones too. It needs the management key.
func (c *Client) ListProjects(ctx context.Context) (*ProjectList, error) {
	return get[ProjectList](ctx, c, path("projects"), nil)
}

// Projects yields the projects as ListProjects returns them.
func (c *Client) Projects(ctx context.Context) iter.Seq2[Project, error] {
	return pages("", func(string) ([]Project, *string, error) {
		list, err := c.ListProjects(ctx)
		if err != nil {
			return nil, nil, err
		}
		return list.Projects, nil, nil
	})
}

// CreateProject creates a project. It needs the management key.
func (c *Client) CreateProject(ctx context.Context, p NewProject) (*Project, error) {
	return send[Project](ctx, c, call{method: http.MethodPost, path: path("projects"), in: p})
}

// CreateProjectKey creates a key of a project. It needs the management key.
func (c *Client) CreateProjectKey(ctx context.Context, k NewProjectKey) (*ProjectKey, error) {
	return send[ProjectKey](ctx, c, call{method: http.MethodPost, path: path("projects", k.Project, "keys"), in: k})
}

// RevokeProjectKey revokes a key by its id: it is refused from its next call on. It needs the management key.
func (c *Client) RevokeProjectKey(ctx context.Context, project, keyID string) error {
	return c.discard(ctx, call{
		method: http.MethodDelete, path: path("projects", project, "keys", keyID), repeat: deletion,
	})
}
