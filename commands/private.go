package commands

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/projection"
)

// makePrivate scopes a single send to its author alone.
func (n *single) makePrivate(ctx context.Context) error {
	author := n.prepared.ingest.Author
	own, err := n.service.privateAudiences(ctx, n.call, author)
	if err == nil {
		n.prepared.ingest.Audience = own[author]
	}
	return err
}

// makePrivate scopes the private items of a batch to their authors.
func (b *batch) makePrivate(ctx context.Context, s *Service, call Call, items []DataPoint) error {
	var authors []string
	for i, in := range items {
		if in.Private {
			authors = append(authors, b.prepared[i].ingest.Author)
		}
	}
	if len(authors) == 0 {
		return nil
	}
	own, err := s.privateAudiences(ctx, call, authors...)
	if err != nil {
		return err
	}
	for i, in := range items {
		if in.Private {
			b.prepared[i].ingest.Audience = own[b.prepared[i].ingest.Author]
		}
	}
	return nil
}

// privateAudiences returns the audience that each identity has for itself. An identity without a record gets one. The
// audiences are those of the records that the directory has, as recall reads them: a record that is removed meanwhile
// takes its audience with it, and nobody reads what is sent to that.
func (s *Service) privateAudiences(ctx context.Context, call Call, names ...string) (map[string]uuid.UUID, error) {
	own := make(map[string]uuid.UUID, len(names))
	missing, err := s.findPrivate(ctx, call, names, own)
	if err != nil || len(missing) == 0 {
		return own, err
	}
	err = s.journal.each(ctx, len(missing), func(ctx context.Context, i int) error {
		return s.ensureIdentity(ctx, call, missing[i])
	})
	if err != nil {
		return nil, err
	}
	head, err := s.journal.Store.Head(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	if err := s.waiter.Wait(ctx, head, projection.Directory); err != nil {
		return nil, unavailable(err)
	}
	if missing, err = s.findPrivate(ctx, call, missing, own); err == nil && len(missing) > 0 {
		err = fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the record of the identity is being removed; nothing is stored; retry")
	}
	return own, err
}

// findPrivate adds the audiences of the identities that have a record, and returns the others, each once.
func (s *Service) findPrivate(
	ctx context.Context, call Call, names []string, own map[string]uuid.UUID,
) (missing []string, err error) {
	project := call.Principal.Project
	ids := make([]uuid.UUID, len(names))
	for i, name := range names {
		ids[i] = stream.IdentityID(project.Namespace, name)
	}
	heads, err := s.directory.RecordHeads(ctx, project, ids)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool, len(names))
	for i, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		if record := heads[ids[i]].Record; record != nil {
			own[name] = stream.PrivateAudienceID(ids[i], record.CreatedAt)
		} else {
			missing = append(missing, name)
		}
	}
	return missing, nil
}
