package commands_test

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
)

// waits records the projections that an answer waited for, and the position.
type waits struct {
	at    eventstore.Position
	names []string
	// late is returned for follow-ups.
	late error
}

func (w *waits) Wait(_ context.Context, position eventstore.Position, names ...string) error {
	if position > 0 {
		w.at, w.names = position, names
	}
	return nil
}

// WaitFollowUp implements commands.FollowUps. It records the follow-up like a projection.
func (w *waits) WaitFollowUp(_ context.Context, projection, kind string, key uuid.UUID) error {
	w.names = append(w.names, projection+" "+kind+" "+key.String())
	return w.late
}

func (w *waits) take() (names []string) {
	names, w.names = w.names, nil
	return names
}

func fixedOf(slug string, identities ...string) commands.AudiencePut {
	return commands.AudiencePut{Slug: slug, Kind: audience.KindFixed, Identities: append([]string{}, identities...)}
}

func ruleOf(slug string, conditions ...audience.Condition) commands.AudiencePut {
	return commands.AudiencePut{
		Slug: slug,
		Kind: audience.KindRule,
		Rule: &audience.Rule{Match: audience.MatchAll, Conditions: conditions},
	}
}

func to(slug string) func(*commands.DataPoint) {
	return func(in *commands.DataPoint) { in.Audience = &slug }
}

func (w *fixture) put(in commands.AudiencePut) commands.AudienceReceipt {
	w.t.Helper()
	r, err := w.PutAudience(w.t.Context(), w.call, in)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// audiences returns the decoded events of the project's audiences.
func (w *fixture) audiences() []eventstore.DecodedEvent {
	w.t.Helper()
	facts, err := w.log.ReadFrom(w.t.Context(), stream.Name(stream.Audiences, w.call.Principal.Project.ID), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return facts
}

func (w *fixture) identityID(name string) uuid.UUID {
	return stream.IdentityID(w.call.Principal.Project.Namespace, name)
}

// records returns the decoded events of an identity.
func (w *fixture) records(name string) []eventstore.DecodedEvent {
	w.t.Helper()
	facts, err := w.log.ReadFrom(w.t.Context(), stream.Name(stream.Identity, w.identityID(name)), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return facts
}

// records is a commands.Records that has some identities, by name.
type records struct {
	names []string
	asked int
}

func (r *records) Known(_ context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	known := make(map[uuid.UUID]struct{})
	for _, name := range r.names {
		if id := stream.IdentityID(project.Namespace, name); slices.Contains(ids, id) {
			known[id] = struct{}{}
		}
	}
	r.asked += len(ids)
	return known, nil
}
