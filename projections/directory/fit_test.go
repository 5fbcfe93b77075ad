package directory_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/directory"
)

func TestFit(t *testing.T) {
	inline := make(traits, 1000)
	for n := range 1000 {
		inline[fmt.Sprint(n)] = "x"
	}
	at := func(n int) *blob.Ref { return &blob.Ref{Stream: fmt.Sprint("blob-", n), Size: 1_000_000} } // 62,500 traits
	of := func(count int, make func(n int) event.Event) (facts []eventstore.DecodedEvent) {
		for n := range count {
			facts = append(facts, eventstore.DecodedEvent{Event: make(n)})
		}
		return facts
	}
	project := func(n int) uuid.UUID { return uuid.UUID{15: byte(n)} }
	for name, c := range map[string]struct {
		facts []eventstore.DecodedEvent
		want  int
	}{
		"small events": {of(512, func(int) event.Event { return &identity.Appeared{} }), 512},
		"250 of 1,000 traits": {of(250, func(int) event.Event {
			return &identity.TraitsReplaced{Record: identity.Record{Traits: identity.Traits{Inline: inline}}}
		}), 250},
		"251 of 1,000 traits": {of(251, func(int) event.Event {
			return &identity.TraitsMerged{Record: identity.Record{Traits: identity.Traits{Inline: inline}}}
		}), 250},
		"rows of 1,000 traits": {of(300, func(int) event.Event {
			return &identity.BulkRowApplied{Record: &identity.Record{Traits: identity.Traits{Inline: inline}}}
		}), 250},
		"rows of nothing": {of(300, func(int) event.Event { return &identity.BulkRowApplied{} }), 300},
		"blobs": {of(9, func(n int) event.Event {
			return &identity.TraitsReplaced{Record: identity.Record{Traits: identity.Traits{Blob: at(n)}}}
		}), 4},
		"one blob of many": {of(9, func(int) event.Event { return &identity.BulkAccepted{Rows: *at(7)} }), 9},
		"lists of members": {of(9, func(n int) event.Event { return &audience.Put{Kind: audience.KindFixed, MembersBlob: at(n)} }), 4},
		"inline members": {of(300, func(int) event.Event {
			return &audience.Put{Kind: audience.KindFixed, Members: make([]uuid.UUID, 6000)}
		}), 41},
		"projects to count": {of(64, func(n int) event.Event { return &audience.Recomputed{ProjectID: project(1 + n)} }), 64},
		"one too big goes alone": {of(3, func(n int) event.Event {
			return &identity.BulkAccepted{Rows: blob.Ref{Stream: fmt.Sprint(n), Size: 16 << 20}}
		}), 1},
		"one too big and no other": {of(1, func(int) event.Event { return &identity.BulkAccepted{Rows: blob.Ref{Size: 64 << 20}} }), 1},
	} {
		if got := (*directory.Projector)(nil).Fit(c.facts); got != c.want {
			t.Errorf("%s: %d events fit, want %d", name, got, c.want)
		}
	}
}
