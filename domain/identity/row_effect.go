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
	// Outdated is true if one of the later effects replaces all traits, or removes the record: the row
	// changes none of them.
	Outdated bool
	// Patches are the later effects, in order, if Outdated is false.
	Patches []Patch

	before  *Record
	removed bool
}

// ResolveRow returns the effect of a row. base is the record that the row was decided on, nil for
// none. stored is what the stream holds after base, in its order. Every effect up to base is before
// the commit.
func ResolveRow(base *Record, stored []Effect, commit uint64) RowEffect {
	p := RowEffect{Head: base, before: base, Status: Updated}
	for _, e := range stored {
		p.Head = Evolve(p.Head, e.Event)
	}
	ordered := slices.Clone(stored)
	slices.SortStableFunc(ordered, func(a, b Effect) int { return cmp.Compare(a.At, b.At) })
	for _, e := range ordered {
		if e.At < commit {
			p.before = evolveByEffect(p.before, e.Event)
			continue
		}
		switch e := e.Event.(type) {
		case *Cleared:
			continue
		case *TraitsMerged:
			p.Patches = append(p.Patches, e.Patch)
		case *TraitsReplaced, *BulkRowApplied:
			p.Outdated = true
		case *Removed:
			p.Outdated, p.removed = true, true
		}
		p.History = true
	}
	if p.before == nil {
		p.Status = Created
	}
	return p
}

// evolveByEffect folds an event in effect order. The record keeps what created it.
func evolveByEffect(current *Record, e event.Event) *Record {
	next := Evolve(current, e)
	if row, is := e.(*BulkRowApplied); is && row.Record == nil {
		// The effect that removed the record is after the row.
		if next = current; next == nil {
			next = &Record{}
		}
	}
	if current == nil || next == nil {
		return next
	}
	record := *next
	record.Origin, record.CreatedAt = current.Origin, current.CreatedAt
	return &record
}

// Record returns the record at the head of the stream after the row is stored, nil if it is removed
// by then. traits are those of the row or, if there are Patches, those of the row under them.
func (p RowEffect) Record(row Row, traits Traits, origin Origin, acceptedAt time.Time) *Record {
	own := Record{Identity: row.Identity, Traits: traits, Origin: origin, CreatedAt: acceptedAt, UpdatedAt: acceptedAt}
	if p.before != nil {
		own.Origin, own.CreatedAt, own.UpdatedAt = p.before.Origin, p.before.CreatedAt, later(p.before.UpdatedAt, acceptedAt)
	}
	if !p.History {
		return &own
	}
	if p.Head == nil || p.removed {
		return p.Head
	}
	head := *p.Head
	head.Origin, head.CreatedAt, head.UpdatedAt = own.Origin, own.CreatedAt, later(head.UpdatedAt, own.UpdatedAt)
	if !p.Outdated {
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
func Replace(current *Record, identity string, traits Traits, origin Origin, at time.Time) Record {
	if current == nil {
		return Record{Identity: identity, Traits: traits, Origin: origin, CreatedAt: at, UpdatedAt: at}
	}
	next := *current
	next.Traits, next.UpdatedAt = traits, later(current.UpdatedAt, at)
	return next
}
