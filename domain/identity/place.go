package identity

import (
	"cmp"
	"slices"
	"time"

	"github.com/annals-project/annals/domain/event"
)

// Effect is an event of a record's stream, with the position at which it takes effect: its own, or
// that of the commit of a bulk write.
type Effect struct {
	At    uint64
	Event event.Event
}

// RowEffect is the effect of a row of a committed bulk write among the effects of its record.
type RowEffect struct {
	// Status is Created or Updated.
	Status string
	// History is true if effects after the commit are stored already.
	History bool
	// Head is the record after everything that is stored, nil for none.
	Head *Record
	// Stands is true if one of the later effects replaces all traits, or removes the record: the row
	// changes none of them.
	Stands bool
	// Patches are the later effects, in order, if Stands is false.
	Patches []Patch

	below   *Record
	removed bool
}

// ResolveRow returns the effect of a row. base is the record that the row was decided on, nil for
// none. stored is what the stream holds after base, in its order. Every effect up to base is before
// the commit.
func ResolveRow(base *Record, stored []Effect, commit uint64) RowEffect {
	p := RowEffect{Head: base, below: base, Status: Updated}
	for _, e := range stored {
		p.Head = Evolve(p.Head, e.Event)
	}
	ordered := slices.Clone(stored)
	slices.SortStableFunc(ordered, func(a, b Effect) int { return cmp.Compare(a.At, b.At) })
	for _, e := range ordered {
		if e.At < commit {
			p.below = evolveByEffect(p.below, e.Event)
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

// evolveByEffect folds an event in effect order. The record keeps what created it.
func evolveByEffect(standing *Record, e event.Event) *Record {
	next := Evolve(standing, e)
	if row, is := e.(*BulkRowApplied); is && row.Record == nil {
		// The effect that removed the record is after the row.
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

// Record returns the record at the head of the stream after the row is stored, nil if it is removed
// by then. traits are those of the row or, if there are Patches, those of the row under them.
func (p RowEffect) Record(row Row, traits Traits, origin Origin, acceptedAt time.Time) *Record {
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

// Replace returns the record with all of its traits replaced. It creates the record if current is
// nil.
func Replace(standing *Record, identity string, traits Traits, origin Origin, at time.Time) Record {
	if standing == nil {
		return Record{Identity: identity, Traits: traits, Origin: origin, CreatedAt: at, UpdatedAt: at}
	}
	next := *standing
	next.Traits, next.UpdatedAt = traits, later(standing.UpdatedAt, at)
	return next
}
