package commands_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

func hashKeyOf(b byte) []byte {
	key := make([]byte, 32)
	key[0] = b
	return key
}

func TestBootstrap_HashKey(t *testing.T) {
	for _, c := range []struct {
		name string
		// checked is the key whose check the registry has; empty is true for a log without events.
		checked byte
		empty   bool
		key     []byte
		want    error
	}{
		{"empty log", 0, true, hashKeyOf(1), nil},
		{"the key of the log", 1, false, hashKeyOf(1), nil},
		{"another key", 1, false, hashKeyOf(2), tenancy.ErrWrongHashKey},
		{"no key", 1, false, nil, tenancy.ErrNoHashKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFixture(t)
			id := uuid.New()
			before := registry.State{}
			if !c.empty {
				w.given(
					stream.Registry,
					registry.LogOpened{LogID: uuid.New(), Format: registry.Format, OpenedAt: w.call.ReceivedAt},
					registry.OrganizationCreated{OrganizationID: id, Name: "Annals"},
					registry.ProjectCreated{OrganizationID: id, Slug: "default"},
				)
				if c.checked > 0 {
					set := registry.HashKeySet{Check: registry.HashKeyCheck(hashKeyOf(c.checked))}
					meta := event.NewMeta("test", time.Now())
					runtest.Must(t, errorOf(w.log.Append(t.Context(), stream.Registry, 2, meta, set)))
				}
				before = w.registry()
			}
			first := tenancy.FirstStart{Organization: "Annals", HashKey: c.key, At: w.call.ReceivedAt}
			for range 2 {
				if err := tenancy.Bootstrap(t.Context(), w.log, first); !errors.Is(err, c.want) {
					t.Fatalf("error %v, want %v", err, c.want)
				}
			}
			if err := tenancy.CheckHashKey(t.Context(), w.log, c.key); !errors.Is(err, c.want) {
				t.Errorf("checked: %v, want %v", err, c.want)
			}
			after := w.registry()
			if c.want != nil {
				if after.Events != before.Events {
					t.Errorf("%d events before and %d after a refusal", before.Events, after.Events)
				}
				return
			}
			if after.HashKeyCheck != registry.HashKeyCheck(c.key) || len(after.Organizations) != 1 || after.Events != 4 {
				t.Errorf("registry: %+v", after)
			}
			if err := tenancy.CheckHashKey(t.Context(), w.log, hashKeyOf(9)); !errors.Is(err, tenancy.ErrWrongHashKey) {
				t.Errorf("another key from then on: %v", err)
			}
		})
	}
}

func TestCheckHashKey_EmptyLog(t *testing.T) {
	w := newFixture(t)
	for _, key := range [][]byte{nil, hashKeyOf(1)} {
		if err := tenancy.CheckHashKey(t.Context(), w.log, key); err != nil {
			t.Errorf("key %x: %v", key, err)
		}
	}
}

// Of processes that open one log with different keys at once, exactly one starts.
func TestBootstrap_HashKeyRace(t *testing.T) {
	w := newFixture(t)
	const processes = 4
	errs := make([]error, processes)
	var wg sync.WaitGroup
	for i := range processes {
		log := fixtureOver(t, w.store).log
		wg.Go(func() {
			errs[i] = tenancy.Bootstrap(t.Context(), log,
				tenancy.FirstStart{Organization: "Annals", HashKey: hashKeyOf(byte(i + 1)), At: w.call.ReceivedAt})
		})
	}
	wg.Wait()
	check := w.registry().HashKeyCheck
	for i, err := range errs {
		own := check == registry.HashKeyCheck(hashKeyOf(byte(i+1)))
		if own && err != nil || !own && !errors.Is(err, tenancy.ErrWrongHashKey) {
			t.Errorf("process %d: %v; the log has its key: %t", i, err, own)
		}
	}
}

// A log whose beginning somebody else removed is refused in its own words: it is no empty one.
func TestLogID_BeginningIsGone(t *testing.T) {
	t.Parallel()
	for metadata, want := range map[string]string{
		`{"$maxCount":1}`:             "lacks its first events and begins at 1",
		`{"$tb":1}`:                   "lacks its first events and begins at 1",
		`{"$tb":9223372036854775807}`: "has no event, and its metadata has $tb",
		"":                            "with which the log begins, was deleted",
	} {
		w := fixtureOver(t, nodetest.Open(t, nodetest.ConfigOf(nodetest.Start(t, node.Config{Insecure: true}).Connection())))
		w.given(stream.Registry, registry.LogOpened{LogID: uuid.New(), Format: registry.Format, OpenedAt: w.call.ReceivedAt},
			registry.OrganizationCreated{OrganizationID: uuid.New(), Name: "Annals"})
		var err error
		if metadata == "" {
			_, err = w.store.Tombstone(t.Context(), stream.Registry, 1)
		} else {
			_, err = w.store.Append(t.Context(), "$$"+stream.Registry, eventstore.NoStream, []eventstore.Proposed{
				{ID: uuid.New(), Type: eventstore.MetadataType, Data: []byte(metadata)},
			})
		}
		runtest.Must(t, err)
		if _, err := tenancy.LogID(t.Context(), w.log.Journal); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", metadata, err, want)
		}
	}
}
