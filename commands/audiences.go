package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
)

// AudiencePut is an audience as sent. Identities are distinct, each within its limits.
type AudiencePut struct {
	Slug string
	// Name is nil where it is omitted.
	Name *string
	Kind audience.Kind
	// Identities is nil where they are omitted, and empty for a list of nobody.
	Identities []string
	// Rule is nil where it is omitted.
	Rule *audience.Rule
}

// AudienceReceipt says which audience a command was about.
type AudienceReceipt struct {
	ID   uuid.UUID
	Slug string
	// Created is false where it stood before.
	Created bool
}

// putTimeout bounds the put of an audience, which makes a record for each member that has none.
const putTimeout = fanOutTimeout

// PutAudience creates an audience or replaces its definition. Recall follows it before the answer.
//
// Its faults are audience-slug-invalid, audience-slug-reserved, audience-kind-invalid, audience-kind-mismatch,
// audience-kind-switch-invalid, audience-rule-invalid, audience-limit-reached, and invalid-request for a definition that is missing.
func (s *Service) PutAudience(ctx context.Context, call Call, in AudiencePut) (AudienceReceipt, error) {
	putCtx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	definition, ruleText, err := shapeOf(in)
	if err != nil {
		return AudienceReceipt{}, err
	}
	draft := audience.Draft{
		Slug: in.Slug, Name: in.Name, Kind: in.Kind, HasIdentities: in.Identities != nil, HasRule: in.Rule != nil, Definition: definition,
	}
	project := call.Principal.Project.ID
	// A put that is refused makes no record and writes no blob.
	state, err := s.audiences.read(putCtx, project)
	if err != nil {
		return AudienceReceipt{}, err
	}
	fresh := uuid.New()
	if _, _, err := state.Decide(draft, project, fresh, call.ReceivedAt); err != nil {
		return AudienceReceipt{}, err
	}
	if in.Rule != nil {
		if err := in.Rule.Check(); err != nil {
			return AudienceReceipt{}, err
		}
	}
	var blobs written
	defined, err := s.define(putCtx, call, &blobs, in, ruleText)
	if err != nil {
		return AudienceReceipt{}, err
	}
	created := false
	put, position, err := appendToAudiences(putCtx, s, call, &blobs, func(
		state *audience.State,
	) (put audience.Put, err error) {
		put, created, err = state.Decide(draft, project, fresh, call.ReceivedAt)
		put.Members, put.MembersBlob, put.Rule, put.RuleBlob = defined.Members, defined.MembersBlob, defined.Rule, defined.RuleBlob
		return put, err
	})
	if err != nil {
		return AudienceReceipt{}, err
	}
	return AudienceReceipt{ID: put.AudienceID, Slug: put.Slug, Created: created}, visible(ctx, s.Waiter, position, projectionDirectory)
}

// DeleteAudience ends an audience: what is scoped to it reaches nobody, and its slug is free. Recall follows it before the answer.
// Its faults are audience-slug-invalid, audience-slug-reserved and not-found.
func (s *Service) DeleteAudience(ctx context.Context, call Call, slug string) error {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	_, position, err := appendToAudiences(decideCtx, s, call, &written{}, func(
		state *audience.State,
	) (audience.Removed, error) {
		return state.Remove(slug, call.Principal.Project.ID, call.ReceivedAt)
	})
	if err != nil {
		return err
	}
	return visible(ctx, s.Waiter, position, projectionDirectory)
}

// RecomputeAudience counts the members of an audience anew. Its faults are those of DeleteAudience.
func (s *Service) RecomputeAudience(ctx context.Context, call Call, slug string) (AudienceReceipt, error) {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	done, position, err := appendToAudiences(decideCtx, s, call, &written{}, func(
		state *audience.State,
	) (audience.Recomputed, error) {
		return state.Recompute(slug, call.Principal.Project.ID, call.ReceivedAt)
	})
	if err != nil {
		return AudienceReceipt{}, err
	}
	return AudienceReceipt{ID: done.AudienceID, Slug: slug}, visible(ctx, s.Waiter, position, projectionDirectory)
}

// appendToAudiences decides on the audiences of the caller's project and appends at the revision that it decided on.
func appendToAudiences[E event.Event](
	ctx context.Context, s *Service, call Call, blobs *written, decide func(*audience.State) (E, error),
) (E, eventstore.Position, error) {
	var none E
	name := stream.Name(stream.Audiences, call.Principal.Project.ID)
	release, err := s.Log.Serialize(ctx, name)
	if err != nil {
		return none, 0, unavailable(err)
	}
	defer release()
	for {
		state, err := s.audiences.read(ctx, call.Principal.Project.ID)
		if err != nil {
			return none, 0, err
		}
		change, err := decide(state)
		if err != nil {
			return none, 0, err
		}
		read := eventstore.Revision(state.Events - 1)
		done, err := s.Log.appendReferring(ctx, blobs, name, read, call.meta(uuid.New()), change)
		if errors.Is(err, eventstore.ErrConflict) {
			continue
		}
		return change, done.Position, err
	}
}

// shapeOf is how big the definition of a put is, and the JSON of a rule that is too big for the event.
func shapeOf(in AudiencePut) (size int64, ruleText []byte, err error) {
	if in.Rule == nil {
		return audience.MembersBytes(len(in.Identities)), nil, nil
	}
	text, err := json.Marshal(in.Rule)
	if err != nil {
		return 0, nil, fmt.Errorf("encode rule: %w", err)
	}
	if len(text) > inlineBody {
		return int64(len(text)), text, nil
	}
	return (&audience.Put{Rule: in.Rule}).DefinitionBytes(), nil, nil
}

// define makes the part of a put that says who belongs: members get their records, and what is too big for the event goes to a blob
// of the project.
func (s *Service) define(
	ctx context.Context, call Call, w *written, in AudiencePut, ruleText []byte,
) (put audience.Put, err error) {
	switch {
	case ruleText != nil:
		put.RuleBlob, err = s.definitionBlob(ctx, call, w, ruleText)
		return put, err
	case in.Rule != nil:
		put.Rule = in.Rule
		return put, nil
	}
	members, err := s.appearMembers(ctx, call, in.Identities)
	if err != nil {
		return put, err
	}
	if len(members) <= inlineMembers {
		put.Members = members
		return put, nil
	}
	raw := make([]byte, 0, len(members)*len(uuid.UUID{}))
	for _, id := range members {
		raw = append(raw, id[:]...)
	}
	put.MembersBlob, err = s.definitionBlob(ctx, call, w, raw)
	return put, err
}

// inlineMembers is how many members stand in the event itself: an id is 36 characters, quotes and a comma.
const inlineMembers = inlineBody / 39

// definitionBlob writes a definition to a blob of the project, which stays as long as the audiences' stream does.
func (s *Service) definitionBlob(ctx context.Context, call Call, w *written, data []byte) (*blob.Ref, error) {
	project, command := call.Principal.Project.ID, uuid.New()
	ref, err := s.Log.writeBlob(ctx, w, project, command, project, call.ReceivedAt.Add(BlobKeep), call.meta(command), data)
	if err != nil {
		return nil, unavailable(err)
	}
	return &ref, nil
}

// Records knows which identities have a record, as far as a projection has seen. Those whose removal was answered are not among them,
// since that answer waits for it.
type Records interface {
	Known(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]struct{}, error)
}

// appearMembers makes a record for each identity that has none, and answers the sorted ids of all of them.
func (s *Service) appearMembers(ctx context.Context, call Call, identities []string) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, len(identities))
	for i, name := range identities {
		ids[i] = stream.IdentityID(call.Principal.Project.Namespace, name)
	}
	var known map[uuid.UUID]struct{}
	if s.Records != nil && len(ids) > 0 {
		var err error
		if known, err = s.Records.Known(ctx, call.Principal.Project, ids); err != nil {
			return nil, err
		}
	}
	err := s.Log.each(ctx, len(ids), func(ctx context.Context, i int) error {
		if _, is := known[ids[i]]; is {
			return nil
		}
		return s.appearMember(ctx, call, ids[i], identities[i])
	})
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(ids), err
}

// appearMember makes the record of a member whom the directory does not know. Most of those were never heard of: so it is tried on an
// empty stream without a look at it, which the store refuses where that is wrong.
func (s *Service) appearMember(ctx context.Context, call Call, id uuid.UUID, name string) error {
	if s.Records != nil {
		appeared := identity.Appeared{ProjectID: call.Principal.Project.ID, Identity: name, Origin: identity.OriginAudience, AppearedAt: call.ReceivedAt}
		_, err := s.Log.Append(ctx, stream.Name(stream.Identity, id), eventstore.NoStream, call.meta(uuid.New()), appeared)
		if !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
	}
	return s.Log.appearIn(ctx, call, id, name, identity.OriginAudience)
}
