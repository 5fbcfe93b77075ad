package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/secret"
)

// FirstStart is what the first start of an empty log creates: an organization with its management
// key, and a project "default" with a key. The keys were generated and fsynced to a file before, so
// that no crash loses one.
type FirstStart struct {
	Organization  string
	ManagementKey secret.Key
	ProjectKey    secret.Key
	// HashKey is not stored. The log has a check of it (registry.HashKeySet).
	HashKey []byte
	At      time.Time
}

// Registered reports whether any process has bootstrapped the log.
func Registered(ctx context.Context, l *engine.Journal) (bool, error) {
	_, ok, err := l.Last(ctx, stream.Registry)
	return ok, err
}

// Bootstrap creates the first events of an empty log, or continues where a crash interrupted that.
// The first append decides: if two processes start at once, one of them creates. A complete log is
// left as it is. The errors include ErrNoHashKey and ErrWrongHashKey, since ids and fingerprints of
// another key match nothing in the log.
func Bootstrap(ctx context.Context, l *engine.Journal, first FirstStart) error {
	state, err := openRegistry(ctx, l, first)
	if err != nil {
		return err
	}
	owner := state.Organizations[0]
	p, ok := state.Project(owner.OrganizationID, "default")
	if !ok || first.ManagementKey.Hash == "" {
		return nil
	}
	parts := partsOf(owner, &first.ManagementKey, first.At)
	_, err = l.DecideOrganization(
		ctx,
		owner.OrganizationID,
		first.meta,
		func(state organization.State) ([]event.Event, error) {
			if len(state.KeyHashes) > 0 {
				return nil, nil // what else is missing is added when the organization's preparation is ended
			}
			return state.Missing(parts), nil
		},
	)
	if err != nil {
		return err
	}
	return first.append(ctx, l, stream.Name(stream.Project, p.ProjectID), project.KeyCreated{
		ProjectID: p.ProjectID, KeyID: uuid.New(), Name: "default", Hash: first.ProjectKey.Hash,
		Prefix: first.ProjectKey.Prefix, Suffix: first.ProjectKey.Suffix, CreatedAt: first.At,
	})
}

// openRegistry appends the first events of an empty log.
func openRegistry(ctx context.Context, l *engine.Journal, first FirstStart) (registry.State, error) {
	reader := &engine.RegistryReader{Journal: l}
	_, err := engine.Decide(ctx, l, engine.Decision[registry.State]{
		Stream: stream.Registry, Read: reader.ReadHead, Meta: first.meta,
		Decide: func(_ context.Context, state registry.State) ([]event.Event, error) {
			if err := fits(state, first.HashKey); err != nil || state.Events > 0 {
				return nil, err
			}
			return first.registryEvents(), nil
		},
	})
	if err != nil {
		return registry.State{}, err
	}
	return reader.Read(ctx)
}

// registryEvents are what an empty log begins with.
func (first FirstStart) registryEvents() []event.Event {
	organizationID := uuid.New()
	return []event.Event{
		registry.LogOpened{LogID: uuid.New(), Format: registry.Format, OpenedAt: first.At},
		registry.HashKeySet{Check: registry.HashKeyCheck(first.HashKey), SetAt: first.At},
		registry.OrganizationCreated{
			OrganizationID: organizationID, Name: first.Organization, Plan: metering.SelfHosted, CreatedAt: first.At,
		},
		registry.ProjectCreated{
			OrganizationID: organizationID, ProjectID: uuid.New(), Number: 1, Slug: "default", Name: "default",
			Namespace: uuid.New(), CreatedAt: first.At,
		},
	}
}

// The errors of CheckHashKey.
var (
	ErrNoHashKey    = errors.New("the log is written with a hash key, and none is known")
	ErrWrongHashKey = errors.New("the hash key is not the one that the log is written with")
)

// errBeginningGone is a log whose first event somebody else removed. To append to it would begin a second log.
var errBeginningGone = errors.New("remove from the metadata of the stream what bounds or truncates it, while " +
	"the store still has the events, or restore the event store from a backup")

// CheckFormat checks that this version can read a log, by its first event: nothing else is decoded.
// The error is a *registry.FormatError if another version wrote it. An empty log passes.
func CheckFormat(ctx context.Context, j eventstore.Journal) error {
	_, err := LogID(ctx, j)
	return err
}

// LogID returns the id of a log as CheckFormat checks it, uuid.Nil for an empty log. A log whose first event was
// removed is no empty one.
func LogID(ctx context.Context, j eventstore.Journal) (uuid.UUID, error) {
	first, err := j.Read(ctx, stream.Registry, 0, eventstore.Forwards, 1)
	switch {
	case errors.Is(err, eventstore.ErrDeleted):
		return uuid.Nil, fmt.Errorf("stream %s, with which the log begins, was deleted: %w",
			stream.Registry, errBeginningGone)
	case err != nil:
		return uuid.Nil, err
	case len(first) == 0:
		return uuid.Nil, checkNeverOpened(ctx, j)
	case first[0].Revision > 0:
		return uuid.Nil, fmt.Errorf("stream %s, with which the log begins, lacks its first events and begins at %d: %w",
			stream.Registry, first[0].Revision, errBeginningGone)
	}
	opened, is := first[0].Event.(*registry.LogOpened)
	if !is {
		return uuid.Nil, fmt.Errorf("the log does not begin with %s but with %s",
			registry.LogOpened{}.EventType(), first[0].Type)
	}
	return opened.LogID, registry.CheckFormat(opened.Format)
}

// checkNeverOpened returns an error if the registry has no event because somebody else deleted or bounded the stream.
// Its metadata shows that: everything in it but rights.
func checkNeverOpened(ctx context.Context, j eventstore.Journal) error {
	metadata, ok, err := j.Store.ReadLast(ctx, "$$"+stream.Registry)
	if err != nil || !ok {
		return err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(metadata.Data, &fields); err != nil {
		return fmt.Errorf("metadata of stream %s: %w", stream.Registry, err)
	}
	delete(fields, "$acl")
	if len(fields) == 0 {
		return nil
	}
	return fmt.Errorf("stream %s, with which a log begins, has no event, and its metadata has %s: %w", stream.Registry,
		strings.Join(slices.Sorted(maps.Keys(fields)), ", "), errBeginningGone)
}

// CheckHashKey checks that a hash key is the one that the log was written with; nil is no key. An
// empty log takes any key or none. A log of another format is refused before it is read.
func CheckHashKey(ctx context.Context, l *engine.Journal, key []byte) error {
	if err := CheckFormat(ctx, l.Journal); err != nil {
		return engine.Unavailable(err)
	}
	state, err := (&engine.RegistryReader{Journal: l}).Read(ctx)
	if err != nil || state.Events == 0 {
		return err
	}
	return fits(state, key)
}

// fits compares a hash key with the check in the registry.
func fits(state registry.State, key []byte) error {
	switch {
	case len(key) == 0:
		return ErrNoHashKey
	case state.Events > 0 && state.HashKeyCheck != registry.HashKeyCheck(key):
		return ErrWrongHashKey
	}
	return nil
}

// Meta is the metadata of the events of the first start.
func (first FirstStart) meta() event.Meta { return event.NewMeta("first start", first.At) }

// append appends to an empty stream. It does nothing if the stream has events.
func (first FirstStart) append(ctx context.Context, l *engine.Journal, name string, e event.Event) error {
	_, err := l.Append(ctx, name, eventstore.NoStream, first.meta(), e)
	if errors.Is(err, eventstore.ErrConflict) {
		return nil
	}
	return err
}
