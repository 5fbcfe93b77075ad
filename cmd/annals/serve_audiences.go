package main

import (
	"context"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/directory"
)

// audienceViews shows the write side an audience as the read side answers it.
type audienceViews struct{ queries *directory.Queries }

// ViewAudience implements what writeapi asks for.
func (v audienceViews) ViewAudience(ctx context.Context, project auth.Project, slug string) (view any, ok bool, err error) {
	return v.queries.Audience(ctx, project, slug)
}
