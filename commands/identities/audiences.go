package identities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/lru"
	"github.com/annals-project/annals/internal/projection"
)

// AudiencePut is an audience as sent. Identities are distinct, each within its limits.
type AudiencePut struct {
	Slug string
	// Name is nil if it is omitted.
	Name *string
	Kind audience.Kind
	// Identities is nil if they are omitted, and empty for a list without members.
	Identities []string
	// Rule is nil if it is omitted.
	Rule *audience.Rule
}

// AudienceReceipt names the audience of a command.
type AudienceReceipt struct {
	ID   uuid.UUID
	Slug string
	// Created is false if the audience existed before.
	Created bool
}

// putTimeout bounds the put of an audience, which creates a record for each member that has none.
const putTimeout = engine.FanOutTimeout

// PutAudience creates an audience or replaces its definition. It returns once recall shows the
// change, and the members of a rule are counted.
//
// Its faults are audience-slug-invalid, audience-slug-reserved, audience-kind-invalid,
// audience-kind-mismatch, audience-kind-switch-invalid, audience-rule-invalid,
// audience-limit-reached, and invalid-request for a missing definition.
func (s *Service) PutAudience(ctx context.Context, call engine.Call, in AudiencePut) (AudienceReceipt, error) {
	putCtx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	definition, ruleText, err := shapeOf(in)
	if err != nil {
		return AudienceReceipt{}, err
	}
	draft := audience.Draft{
		Slug: in.Slug, Name: in.Name, Kind: in.Kind, HasIdentities: in.Identities != nil, HasRule: in.Rule != nil,
		Definition: definition,
	}
	project := call.Principal.Project.ID
	// Check before any record or blob is written.
	state, err := s.Audiences.read(putCtx, project)
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
	var blobs engine.Written
	defined, err := s.define(putCtx, call, &blobs, in, ruleText)
	if err != nil {
		return AudienceReceipt{}, err
	}
	created := false
	put, position, err := decideAudiences(
		putCtx,
		s,
		call,
		&blobs,
		func(state *audience.State) (put audience.Put, err error) {
			put, created, err = state.Decide(draft, project, fresh, call.ReceivedAt)
			put.Members, put.MembersBlob = defined.Members, defined.MembersBlob
			put.Rule, put.RuleBlob = defined.Rule, defined.RuleBlob
			return put, err
		},
	)
	if err != nil {
		return AudienceReceipt{}, err
	}
	receipt := AudienceReceipt{ID: put.AudienceID, Slug: put.Slug, Created: created}
	return receipt, s.waitCounted(ctx, position, put.AudienceID)
}

// waitCounted waits until recall shows a change of an audience, and its members are counted.
func (s *Service) waitCounted(ctx context.Context, position eventstore.Position, id uuid.UUID) error {
	err := engine.WaitVisible(ctx, s.waiter, position, projection.Directory)
	if err != nil || s.followUps == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recountTimeout)
	defer cancel()
	if err := s.followUps.WaitFollowUp(ctx, projection.Directory, projection.Recount, id); err != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the write is stored and recall shows it, but the members of the audience are still being counted").
			With("committed", true)
	}
	return nil
}

// DeleteAudience removes an audience: data points that are scoped to it have no readers, and its
// slug is free. It returns once recall shows the change. Its faults are audience-slug-invalid,
// audience-slug-reserved and not-found.
func (s *Service) DeleteAudience(ctx context.Context, call engine.Call, slug string) error {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	_, position, err := decideAudiences(decideCtx, s, call, nil, func(state *audience.State) (audience.Removed, error) {
		return state.Remove(slug, call.Principal.Project.ID, call.ReceivedAt)
	})
	if err != nil {
		name := stream.Name(stream.Audiences, call.Principal.Project.ID)
		return engine.RefuseRemovalFrom(decideCtx, s.journal, s.waiter, err, name, projection.Directory)
	}
	return engine.WaitVisible(ctx, s.waiter, position, projection.Directory)
}

// RecomputeAudience counts the members of an audience again. Its faults are those of
// DeleteAudience.
func (s *Service) RecomputeAudience(ctx context.Context, call engine.Call, slug string) (AudienceReceipt, error) {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	done, position, err := decideAudiences(
		decideCtx,
		s,
		call,
		nil,
		func(state *audience.State) (audience.Recomputed, error) {
			return state.Recompute(slug, call.Principal.Project.ID, call.ReceivedAt)
		},
	)
	if err != nil {
		return AudienceReceipt{}, err
	}
	return AudienceReceipt{ID: done.AudienceID, Slug: slug}, s.waitCounted(ctx, position, done.AudienceID)
}

// decideAudiences decides on the audiences of the caller's project.
func decideAudiences[E event.Event](
	ctx context.Context, s *Service, call engine.Call, blobs *engine.Written, decide func(*audience.State) (E, error),
) (change E, position eventstore.Position, err error) {
	project := call.Principal.Project.ID
	done, err := engine.Decide(ctx, s.journal, engine.Decision[*audience.State]{
		Stream: stream.Name(stream.Audiences, project),
		Read: func(ctx context.Context) (*audience.State, engine.Head, error) {
			state, err := s.Audiences.read(ctx, project)
			if err != nil {
				return nil, engine.Head{}, err
			}
			return state, engine.HeadAfter(state.Events), nil
		},
		Decide: func(_ context.Context, state *audience.State) (events []event.Event, err error) {
			change, err = decide(state)
			return []event.Event{change}, err
		},
		Meta: call.NewMeta, Blobs: blobs,
	})
	return change, done.Position, err
}

// shapeOf returns the size of the definition of a put, and the JSON of a rule that is too big for
// the event.
func shapeOf(in AudiencePut) (size int64, ruleText []byte, err error) {
	if in.Rule == nil {
		return audience.MembersBytes(len(in.Identities)), nil, nil
	}
	text, err := json.Marshal(in.Rule)
	if err != nil {
		return 0, nil, fmt.Errorf("encode rule: %w", err)
	}
	if len(text) > engine.InlineBody {
		return int64(len(text)), text, nil
	}
	return (&audience.Put{Rule: in.Rule}).DefinitionBytes(), nil, nil
}

// define makes the definition of a put. Members get identity records, and what is too big for the
// event goes to a blob of the project.
func (s *Service) define(
	ctx context.Context, call engine.Call, w *engine.Written, in AudiencePut, ruleText []byte,
) (put audience.Put, err error) {
	switch {
	case ruleText != nil:
		put.RuleBlob, err = s.definitionBlob(ctx, call, w, ruleText)
		return put, err
	case in.Rule != nil:
		put.Rule = in.Rule
		return put, nil
	}
	members, err := s.ensureMembers(ctx, call, in.Identities)
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

// inlineMembers is how many members are in the event itself: an id takes 36 characters, quotes and
// a comma.
const inlineMembers = engine.InlineBody / 39

// definitionBlob writes a definition to a blob of the project, which exists as long as the stream
// of the audiences.
func (s *Service) definitionBlob(
	ctx context.Context, call engine.Call, w *engine.Written, data []byte,
) (*blob.Ref, error) {
	project, command := call.Principal.Project.ID, uuid.New()
	deadline := call.ReceivedAt.Add(blob.Keep)
	ref, err := s.journal.StoreBlob(ctx, w, project, command, project, deadline, call.Meta(command), data)
	if err != nil {
		return nil, engine.Unavailable(err)
	}
	return &ref, nil
}

// ensureMembers creates a record for each identity that has none, and returns the sorted ids of
// all.
func (s *Service) ensureMembers(ctx context.Context, call engine.Call, identities []string) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, len(identities))
	for i, name := range identities {
		ids[i] = stream.IdentityID(call.Principal.Project.Namespace, name)
	}
	var known map[uuid.UUID]struct{}
	if s.records != nil && len(ids) > 0 {
		var err error
		if known, err = s.records.Known(ctx, call.Principal.Project, ids); err != nil {
			return nil, err
		}
	}
	err := s.journal.Each(ctx, len(ids), func(ctx context.Context, i int) error {
		if _, is := known[ids[i]]; is {
			return nil
		}
		return s.ensureMember(ctx, call, ids[i], identities[i])
	})
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(ids), err
}

// ensureMember creates the record of a member that the directory does not know. Most of these are
// new, so it first appends to an empty stream without a read: the store refuses that if it is
// wrong.
func (s *Service) ensureMember(ctx context.Context, call engine.Call, id uuid.UUID, name string) error {
	if s.records != nil {
		appeared := identity.Appeared{
			ProjectID: call.Principal.Project.ID, Identity: name, Origin: identity.OriginAudience, AppearedAt: call.ReceivedAt,
		}
		_, err := s.journal.Append(ctx, stream.Name(stream.Identity, id), eventstore.NoStream, call.NewMeta(), appeared)
		if !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
	}
	return ensureIdentityIn(ctx, s.journal, call, id, name, identity.OriginAudience)
}

// recountTimeout is how long an answer waits until the members of a rule are counted.
const recountTimeout = 20 * time.Second

// AudienceReader folds the audiences of projects and caches the last state of each. A stream grows
// with definitions, not with use. A returned state is never changed.
type AudienceReader struct {
	journal *engine.Journal
	mu      sync.Mutex
	known   *lru.Map[uuid.UUID, *audience.State]
	// audiences is how many the cached states have together.
	audiences int
}

// The bounds of the cache. What is evicted is folded again. An audience takes at most about a KiB.
const (
	maxAudienceProjects = 1000
	maxKnownAudiences   = 50_000
)

func newAudienceReader(log *engine.Journal) *AudienceReader {
	return &AudienceReader{journal: log, known: lru.New[uuid.UUID, *audience.State](maxAudienceProjects)}
}

// read returns the audiences of a project as of now. It caches what was folded before an error, so
// that a stream of any length is read in the end.
func (r *AudienceReader) read(ctx context.Context, project uuid.UUID) (*audience.State, error) {
	r.mu.Lock()
	state, ok := r.known.Get(project)
	r.mu.Unlock()
	if !ok {
		state = &audience.State{}
	}
	next, err := r.fold(ctx, project, state)
	if next.Events > state.Events {
		r.remember(project, next)
	}
	return next, err
}

// fold returns the state up to the last event that could be read.
func (r *AudienceReader) fold(ctx context.Context, project uuid.UUID, state *audience.State) (*audience.State, error) {
	shared := true
	name, from := stream.Name(stream.Audiences, project), eventstore.Revision(state.Events)
	err := r.journal.Scan(ctx, name, from, func(f eventstore.DecodedEvent) (bool, error) {
		if shared {
			own := state.Clone()
			state, shared = &own, false
		}
		state.Evolve(f.Event)
		return true, nil
	})
	return state, err
}

func (r *AudienceReader) remember(project uuid.UUID, state *audience.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.known.Get(project); ok {
		if known.Events >= state.Events {
			return
		}
		r.audiences -= known.Len()
		r.known.Remove(project)
	}
	r.audiences += state.Len()
	for r.known.Len() > 0 && (r.known.Len() >= maxAudienceProjects || r.audiences > maxKnownAudiences) {
		_, evicted, _ := r.known.RemoveOldest()
		r.audiences -= evicted.Len()
	}
	r.known.Add(project, state)
}

// AudienceNames finds the audiences that the items of one call name, all in one state, which is
// read for the first name.
type AudienceNames struct {
	reader  *AudienceReader
	project uuid.UUID
	state   *audience.State
}

// Names finds the audiences of the project of a call.
func (r *AudienceReader) Names(call engine.Call) *AudienceNames {
	return &AudienceNames{reader: r, project: call.Principal.Project.ID}
}

// ID returns the id of the audience that a slug names, zero for project-visible. The fault is
// audience-unknown.
func (n *AudienceNames) ID(ctx context.Context, slug *string) (uuid.UUID, error) {
	if slug == nil || *slug == audience.Default {
		return uuid.Nil, nil
	}
	if n.state == nil && audience.ValidSlug(*slug) {
		var err error
		if n.state, err = n.reader.read(ctx, n.project); err != nil {
			return uuid.Nil, err
		}
	}
	if n.state != nil {
		if found, ok := n.state.Find(*slug); ok {
			return found.ID, nil
		}
	}
	unknown := fault.New(fault.Invalid, fault.CodeAudienceUnknown, "the project has no audience %q", *slug)
	return uuid.Nil, unknown.With("audience", *slug)
}
