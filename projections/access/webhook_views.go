package access

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tenants"
)

// Webhooks finds webhooks by the names that people use, as Tenancy finds projects.
type Webhooks struct {
	Tenancy Tenancy
	// Vault opens the tokens, which the URLs hold.
	Vault interface {
		Reveal(ctx context.Context, tokenID uuid.UUID) (token string, ok bool, err error)
	}
	// URLs have the address of the console, under which webhooks are called.
	URLs auth.URLs
}

// List lists the webhooks of a project, oldest first, without their URLs.
func (w Webhooks) List(ctx context.Context, organization, slug string) ([]tenants.Webhook, error) {
	of, err := w.WebhookProject(ctx, organization, slug)
	if err != nil {
		return nil, err
	}
	found, err := w.Tenancy.Queries.Webhooks(ctx, of.Project)
	list := make([]tenants.Webhook, len(found))
	for i, one := range found {
		list[i] = one.View(of.Project)
	}
	return list, err
}

// Show returns a webhook with its URL.
func (w Webhooks) Show(ctx context.Context, organization, id string) (tenants.Webhook, error) {
	found, of, err := w.find(ctx, organization, id)
	if err != nil {
		return tenants.Webhook{}, err
	}
	out := found.View(of.Project)
	out.URL, err = w.Reveal(ctx, found)
	return out, err
}

// Reveal returns the URL of a webhook, "" if its token cannot be opened: then the webhook works, but its URL cannot be
// shown.
func (w Webhooks) Reveal(ctx context.Context, of Webhook) (string, error) {
	token, ok, err := w.Vault.Reveal(ctx, of.TokenID)
	if errors.Is(err, secret.ErrSealKeyUnknown) {
		return "", nil
	}
	if err != nil || !ok {
		return "", err
	}
	return w.URLs.Webhook(of.ID, token), nil
}

// WebhookProject returns the only project with a slug, its organization and the plan of that, as a principal.
func (w Webhooks) WebhookProject(ctx context.Context, organization, slug string) (of auth.Principal, err error) {
	if err = w.Tenancy.Head.Await(ctx, projection.Access); err != nil {
		return of, err
	}
	p, err := w.Tenancy.Queries.OnlyProject(ctx, organization, slug)
	if err != nil {
		return of, err
	}
	return w.principal(ctx, p)
}

// Webhook returns a webhook, without its URL, and the principal that WebhookProject returns for its project.
func (w Webhooks) Webhook(ctx context.Context, organization, id string) (tenants.Webhook, auth.Principal, error) {
	found, of, err := w.find(ctx, organization, id)
	return found.View(of.Project), of, err
}

// find finds a webhook of any project or, if an organization is named, of that organization.
func (w Webhooks) find(ctx context.Context, organization, id string) (found Webhook, of auth.Principal, err error) {
	if err = w.Tenancy.Head.Await(ctx, projection.Access); err != nil {
		return found, of, err
	}
	q, p := w.Tenancy.Queries, Project{}
	found, ok, err := q.WebhookByID(ctx, id)
	if err == nil && ok {
		p, ok, err = q.ProjectByID(ctx, found.ProjectID)
	}
	if err == nil && ok && organization != "" {
		named, nameErr := q.OnlyProject(ctx, organization, p.Slug)
		ok = nameErr == nil && named.ID == p.ID
	}
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no such webhook")
	}
	if err != nil {
		return Webhook{}, of, err
	}
	of, err = w.principal(ctx, p)
	return found, of, err
}

func (w Webhooks) principal(ctx context.Context, p Project) (of auth.Principal, err error) {
	organization, _, err := w.Tenancy.Queries.OrganizationByID(ctx, p.OrganizationID)
	of.OrganizationID, of.Project, of.Limits.Plan = p.OrganizationID, p.Project, organization.Plan
	return of, err
}

// View returns a webhook of a project as people see it.
func (w Webhook) View(project auth.Project) tenants.Webhook {
	return tenants.Webhook{
		ID: w.ID, Project: project.Slug, Settings: w.Settings, Paused: w.Paused, CreatedAt: w.CreatedAt,
	}
}
