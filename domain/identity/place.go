package identity

import (
	"cmp"
	"slices"
	"time"

	"github.com/annals-project/annals/domain/event"
)

// Effect is an event of a record's stream, and the log position at which it takes effect: its own, or that of the commit of a bulk write.
type Effect struct {
	At    uint64
	Event event.Event
}

// Placement is where a row of a committed bulk write stands among the effects of its record.
type Placement struct {
	// Status is Created or Updated.
	Status string
	// History is true where effects above the commit are stored already.
	History bool
	// Head is the record with everything that is stored, nil for none.
	Head *Record
	// Stands is true where one of the effects above says all traits, or ends the record: the row changes none of them.
	Stands bool
	// Patches are the effects above, in order, where none of them stands.
	Patches []Patch

	below   *Record
	removed bool
}

// Place finds the place of a row. Base is the record that the row was decided on, nil for none; stored is what the stream holds behind
// that, in its order. Every effect at or below base is below the commit.
func Place(base *Record, stored []Effect, commit uint64) Placement {
	p := Placement{Head: base, below: base, Status: Updated}
	for _, e := range stored {
		p.Head = Evolve(p.Head, e.Event)
	}
	ordered := slices.Clone(stored)
	slices.SortStableFunc(ordered, func(a, b Effect) int { return cmp.Compare(a.At, b.At) })
	for _, e := range ordered {
		if e.At < commit {
			p.below = beneath(p.below, e.Event)
			continue
		}
		switch e := e.Event.(type) {
		case *Cleared:
			continue
		case *TraitsMerged:
			p.Patches = append(p.Patches, e.Patch)
		case *TraitsReplaced, *BulkRowApplied:
			p.Stands = true
		case *Removed:
			p.Stands, p.removed = true, true
		}
		p.History = true
	}
	if p.below == nil {
		p.Status = Created
	}
	return p
}

// beneath is Evolve in the order of effects, of which events need not have known: what created the record says so for ever.
func beneath(standing *Record, e event.Event) *Record {
	next := Evolve(standing, e)
	if row, is := e.(*BulkRowApplied); is && row.Record == nil {
		// What took the record away came above the row.
		if next = standing; next == nil {
			next = &Record{}
		}
	}
	if standing == nil || next == nil {
		return next
	}
	kept := *next
	kept.Origin, kept.CreatedAt = standing.Origin, standing.CreatedAt
	return &kept
}

// Record is what stands at the head of the stream once the row is stored; nil where the record is gone by then. Traits are those of the
// row, or where there are Patches, those of the row under them.
func (p Placement) Record(row Row, traits Traits, origin Origin, acceptedAt time.Time) *Record {
	own := Record{Identity: row.Identity, Traits: traits, Origin: origin, CreatedAt: acceptedAt, UpdatedAt: acceptedAt}
	if p.below != nil {
		own.Origin, own.CreatedAt, own.UpdatedAt = p.below.Origin, p.below.CreatedAt, later(p.below.UpdatedAt, acceptedAt)
	}
	if !p.History {
		return &own
	}
	if p.Head == nil || p.removed {
		return p.Head
	}
	head := *p.Head
	head.Origin, head.CreatedAt, head.UpdatedAt = own.Origin, own.CreatedAt, later(head.UpdatedAt, own.UpdatedAt)
	if !p.Stands {
		head.Traits = traits
	}
	return &head
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Replace is the record with all of its traits replaced at a time; standing is nil for one that is created so.
func Replace(standing *Record, identity string, traits Traits, origin Origin, at time.Time) Record {
	if standing == nil {
		return Record{Identity: identity, Traits: traits, Origin: origin, CreatedAt: at, UpdatedAt: at}
	}
	next := *standing
	next.Traits, next.UpdatedAt = traits, later(standing.UpdatedAt, at)
	return next
}
