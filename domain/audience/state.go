package audience

import (
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
)

// State is what decisions need of the audiences of a project: their slugs, not their members.
type State struct {
	// Events is how many events were folded, which is the revision that the next one will have.
	Events int64
	// bytes is the size of all definitions.
	bytes int64
	live  map[uuid.UUID]Live
	slugs map[string]uuid.UUID
}

// Live is a live audience.
type Live struct {
	ID        uuid.UUID
	Slug      string
	Name      string
	Kind      Kind
	CreatedAt time.Time
	bytes     int64
}

// Evolve folds one event.
func (s *State) Evolve(e event.Event) {
	s.Events++
	switch e := e.(type) {
	case *Put:
		if s.live == nil {
			s.live, s.slugs = make(map[uuid.UUID]Live), make(map[string]uuid.UUID)
		}
		next := Live{
			ID: e.AudienceID, Slug: e.Slug, Name: e.Name, Kind: e.Kind, CreatedAt: e.CreatedAt, bytes: e.DefinitionBytes(),
		}
		s.bytes += next.bytes - s.live[e.AudienceID].bytes
		s.live[e.AudienceID] = next
		s.slugs[e.Slug] = e.AudienceID
	case *Removed:
		s.bytes -= s.live[e.AudienceID].bytes
		delete(s.slugs, s.live[e.AudienceID].Slug)
		delete(s.live, e.AudienceID)
	}
}

// Clone is a copy that shares nothing.
func (s *State) Clone() State {
	return State{Events: s.Events, bytes: s.bytes, live: maps.Clone(s.live), slugs: maps.Clone(s.slugs)}
}

// Len is how many audiences are live.
func (s *State) Len() int { return len(s.live) }

// Find returns the live audience with a slug. The default slug is not found.
func (s *State) Find(slug string) (Live, bool) {
	id, ok := s.slugs[slug]
	return s.live[id], ok
}

// Draft is a put, without its definition, which Rule.Check checks.
type Draft struct {
	Slug string
	// Name is nil if it is omitted.
	Name *string
	Kind Kind
	// HasIdentities and HasRule report which definitions the request has.
	HasIdentities, HasRule bool
	// Definition is the size of the definition (see Put.DefinitionBytes).
	Definition int64
}

// Check returns what is wrong with a draft in any state: audience-slug-invalid,
// audience-slug-reserved, audience-kind-invalid, or audience-kind-mismatch for a definition of the
// other kind.
func (d Draft) Check() error {
	if err := CheckSlug(d.Slug); err != nil {
		return err
	}
	switch {
	case d.Kind != KindFixed && d.Kind != KindRule:
		return fault.New(fault.Invalid, fault.CodeAudienceKindInvalid,
			"kind is %.100q: want %q or %q", d.Kind, KindFixed, KindRule)
	case d.Kind == KindFixed && d.HasRule:
		return fault.New(fault.Invalid, fault.CodeAudienceKindMismatch, "a fixed audience has identities, and no rule")
	case d.Kind == KindRule && d.HasIdentities:
		return fault.New(fault.Invalid, fault.CodeAudienceKindMismatch, "a rule audience has a rule, and no identities")
	}
	return nil
}

// defined reports whether the request has the definition of its kind.
func (d Draft) defined() bool {
	return d.Kind == KindFixed && d.HasIdentities || d.Kind == KindRule && d.HasRule
}

// Decide returns the event of a put, without its definition: a new audience with the id fresh, or
// the replacement of the current one. An omitted name is the stored one, or the slug.
//
// The fault is that of Check; audience-kind-switch-invalid for a change of kind without the new
// kind's definition; invalid-request for another missing definition; audience-limit-reached.
func (s *State) Decide(d Draft, project, fresh uuid.UUID, at time.Time) (put Put, created bool, err error) {
	if err := d.Check(); err != nil {
		return Put{}, false, err
	}
	current, exists := s.Find(d.Slug)
	if !d.defined() {
		return Put{}, false, undefined(d, current, exists)
	}
	if err := s.checkRoom(current, exists, d.Definition); err != nil {
		return Put{}, false, err
	}
	put = Put{ProjectID: project, AudienceID: fresh, Slug: d.Slug, Name: d.Slug, Kind: d.Kind, CreatedAt: at, PutAt: at}
	if exists {
		put.AudienceID, put.Name, put.CreatedAt = current.ID, current.Name, current.CreatedAt
	}
	if d.Name != nil {
		put.Name = *d.Name
	}
	return put, !exists, nil
}

// undefined is the fault of a draft without the definition of its kind.
func undefined(d Draft, current Live, exists bool) error {
	field := "identities"
	if d.Kind == KindRule {
		field = "rule"
	}
	if exists && current.Kind != d.Kind {
		return fault.New(fault.Invalid, fault.CodeAudienceKindSwitch,
			"the audience is of kind %s: to make it one of kind %s, send %s", current.Kind, d.Kind, field)
	}
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s: is required for an audience of kind %s", field, d.Kind).
		With("errors",
			[]map[string]string{{"field": field, "message": fmt.Sprintf("is required for an audience of kind %s", d.Kind)}})
}

// Remove returns the removal of the audience with a slug. The fault is that of CheckSlug, or
// not-found.
func (s *State) Remove(slug string, project uuid.UUID, at time.Time) (Removed, error) {
	current, err := s.named(slug)
	return Removed{ProjectID: project, AudienceID: current.ID, RemovedAt: at}, err
}

// Recompute returns the event that counts the audience with a slug again. The fault is that of
// CheckSlug, or not-found.
func (s *State) Recompute(slug string, project uuid.UUID, at time.Time) (Recomputed, error) {
	current, err := s.named(slug)
	return Recomputed{ProjectID: project, AudienceID: current.ID, RecomputedAt: at}, err
}

func (s *State) named(slug string) (Live, error) {
	if err := CheckSlug(slug); err != nil {
		return Live{}, err
	}
	current, ok := s.Find(slug)
	if !ok {
		return Live{}, fault.New(fault.NotFound, fault.CodeNotFound, "the project has no audience %q", slug)
	}
	return current, nil
}

// RuleInvalid is the fault of a rule that breaks the limits, with the field of the request.
func RuleInvalid(field, format string, args ...any) *fault.Error {
	message := fmt.Sprintf(format, args...)
	return fault.New(fault.Invalid, fault.CodeAudienceRuleInvalid, "%s: %s", field, message).
		With("errors", []map[string]string{{"field": field, "message": message}})
}

// conditionPath is the path of a field of a condition in a request.
func conditionPath(i int, member string) string {
	return fmt.Sprintf("rule.conditions[%d].%s", i, member)
}
