package commands

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/secret"
)

// FirstStart is what the first start of an empty log creates: an organization with its management key and a project "default" with a key.
// The keys were drawn, written and fsynced before, so that a crash in between loses none of them.
type FirstStart struct {
	Organization  string
	ManagementKey secret.Key
	ProjectKey    secret.Key
	// HashKey is written nowhere; the log keeps a check of it (registry.HashKeySet).
	HashKey []byte
	At      time.Time
}

// Registered reports whether the log was opened before, by whom ever.
func Registered(ctx context.Context, l *Log) (bool, error) {
	_, ok, err := l.Last(ctx, stream.Registry)
	return ok, err
}

// Bootstrap opens an empty log, or goes on where a crash interrupted that. The first append decides: of two processes that
// start at once one creates, and the other finds it created. A log that is open already, with its keys, is left as it is.
// Its errors are ErrNoHashKey and ErrWrongHashKey too: ids and fingerprints that are made with another key fit nothing in the log.
func Bootstrap(ctx context.Context, l *Log, first FirstStart) error {
	state, err := l.openRegistry(ctx, first)
	if err != nil {
		return err
	}
	owner := state.Organizations[0]
	p, ok := state.Project(owner.OrganizationID, "default")
	if !ok || first.ManagementKey.Hash == "" {
		return nil
	}
	parts := partsOf(owner, &first.ManagementKey, first.At)
	_, err = l.decideOrganization(ctx, owner.OrganizationID, firstMeta, func(state organization.State) ([]event.Event, error) {
		if len(state.KeyHashes) > 0 {
			return nil, nil // what else is missing is added when the organization's preparation is ended
		}
		return state.Missing(parts), nil
	})
	if err != nil {
		return err
	}
	return l.firstEvent(ctx, stream.Name(stream.Project, p.ProjectID), project.KeyCreated{
		ProjectID: p.ProjectID, KeyID: uuid.New(), Name: "default", Hash: first.ProjectKey.Hash,
		Prefix: first.ProjectKey.Prefix, Suffix: first.ProjectKey.Suffix, CreatedAt: first.At,
	})
}

// openRegistry writes what an empty log begins with, and into a log of an earlier version which hash key it is written with.
func (l *Log) openRegistry(ctx context.Context, first FirstStart) (registry.State, error) {
	reader := &registryReader{log: l}
	for {
		state, err := reader.read(ctx)
		if err != nil {
			return registry.State{}, err
		}
		if err := fits(state, first.HashKey); err != nil || state.HashKeyCheck != "" {
			return state, err
		}
		events := []event.Event{registry.HashKeySet{Check: registry.HashKeyCheck(first.HashKey), SetAt: first.At}}
		if state.Events == 0 {
			organizationID := uuid.New()
			events = []event.Event{
				registry.LogOpened{LogID: uuid.New(), OpenedAt: first.At},
				events[0],
				registry.OrganizationCreated{OrganizationID: organizationID, Name: first.Organization, Plan: metering.SelfHosted, CreatedAt: first.At},
				registry.ProjectCreated{
					OrganizationID: organizationID, ProjectID: uuid.New(), Number: 1, Slug: "default", Name: "default", Namespace: stream.NewNamespace(), CreatedAt: first.At,
				},
			}
		}
		_, err = l.Append(ctx, stream.Registry, eventstore.Revision(state.Events-1), firstMeta(), events...)
		if err != nil && !errors.Is(err, eventstore.ErrConflict) {
			return registry.State{}, err
		}
	}
}

// The errors of CheckHashKey.
var (
	ErrNoHashKey    = errors.New("the log is written with a hash key, and none is known")
	ErrWrongHashKey = errors.New("the hash key is not the one that the log is written with")
)

// CheckHashKey proves that a hash key is the one that the log is written with; nil is none. An empty log takes any key or none, and
// one of an earlier version, which recorded no check, any key.
func CheckHashKey(ctx context.Context, l *Log, key []byte) error {
	state, err := (&registryReader{log: l}).read(ctx)
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
	case state.HashKeyCheck != "" && state.HashKeyCheck != registry.HashKeyCheck(key):
		return ErrWrongHashKey
	}
	return nil
}

// firstMeta is the metadata of what the first start writes.
func firstMeta() event.Meta { return event.Meta{CommandID: uuid.New(), Principal: "first start"} }

// firstEvent appends to an empty stream; a stream that has events is left as it is.
func (l *Log) firstEvent(ctx context.Context, name string, e event.Event) error {
	_, err := l.Append(ctx, name, eventstore.NoStream, firstMeta(), e)
	if errors.Is(err, eventstore.ErrConflict) {
		return nil
	}
	return err
}
