package identity

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
)

// Evolve returns the record after the next event of its stream, nil if there is none. It does not
// change the given record.
func Evolve(current *Record, e event.Event) *Record {
	switch e := e.(type) {
	case *Appeared:
		if current == nil {
			return &Record{Identity: e.Identity, Origin: e.Origin, CreatedAt: e.AppearedAt, UpdatedAt: e.AppearedAt}
		}
	case *TraitsReplaced:
		return &e.Record
	case *TraitsMerged:
		return &e.Record
	case *BulkRowApplied:
		return e.Record
	case *Removed:
		return nil
	}
	return current
}

// IsSelfContained reports whether an event alone determines the record after it.
func IsSelfContained(e event.Event) bool {
	switch e.(type) {
	case *Appeared, *Cleared:
		return false
	default:
		return true
	}
}

// Apply returns traits with the patch applied. A patch in a blob must be read first.
func (p Patch) Apply(traits map[string]string) map[string]string {
	patched := make(map[string]string, len(traits)+len(p.Set))
	maps.Copy(patched, traits)
	maps.Copy(patched, p.Set)
	for _, key := range p.Removed {
		delete(patched, key)
	}
	return patched
}

// traitBytes returns the size that limit.TraitBytes bounds.
func traitBytes(traits map[string]string) int {
	size := 0
	for key, value := range traits {
		size += len(key) + len(value)
	}
	return size
}

// CheckTraits returns the fault traits-invalid for traits beyond the limits, unless those of the
// record before the change were as many and as big.
func CheckTraits(before, traits map[string]string) error {
	if n, most := len(traits), max(limit.Traits, len(before)); n > most {
		return fault.New(fault.Invalid, fault.CodeTraitsInvalid,
			"traits: the identity would have %d: want at most %d", n, limit.Traits)
	}
	if size := traitBytes(traits); size > limit.TraitBytes && size > traitBytes(before) {
		return fault.New(fault.Invalid, fault.CodeTraitsInvalid,
			"traits: keys and values would have %d bytes together: want at most %d", size, limit.TraitBytes)
	}
	return nil
}

// CheckRemoved returns the fault traits-invalid for a patch that removes too many traits.
func CheckRemoved(count int) error {
	if count > limit.Traits {
		return fault.New(fault.Invalid, fault.CodeTraitsInvalid, "traits: %d are null: want at most %d", count, limit.Traits)
	}
	return nil
}

// CheckBulkTraits returns the fault bulk-invalid-rows for a bulk write with too many traits.
func CheckBulkTraits(count int) error {
	if count > limit.BulkTraits {
		return fault.New(fault.Invalid, fault.CodeBulkInvalidRows,
			"the rows have more than %d traits together: send them in several bulk writes", limit.BulkTraits)
	}
	return nil
}

// BulkTarget is the record that a row is about.
type BulkTarget struct {
	IdentityID uuid.UUID `json:"identityId"`
	// Decided is the stream revision of the record that the row was decided on, -1 for none.
	Decided int64 `json:"decided"`
}

// BulkAccepted commits a bulk write of distinct identities: each row replaces the traits of its
// record, or creates it. The rows are staged in a blob, one Row as JSON a line, in the order of
// Targets. After it nothing is refused.
type BulkAccepted struct {
	ProjectID uuid.UUID `json:"projectId"`
	RequestID uuid.UUID `json:"requestId"`
	Principal string    `json:"principal"`
	Origin    Origin    `json:"origin"`
	// FanOut is the command id under which every fan-out of this write appends, in any process.
	FanOut     uuid.UUID    `json:"fanOut"`
	Rows       blob.Ref     `json:"rows"`
	Targets    []BulkTarget `json:"targets"`
	AcceptedAt time.Time    `json:"acceptedAt"`
}

func (BulkAccepted) EventType() string { return "bulk.accepted.v1" }

// Row is one row of a staged bulk write.
type Row struct {
	Identity string            `json:"identity"`
	Traits   map[string]string `json:"traits"`
}

// BulkFannedOut records that every row is stored in the stream of its record. Statuses are Created
// or Updated, in the order of the targets.
type BulkFannedOut struct {
	ProjectID uuid.UUID `json:"projectId"`
	Statuses  []string  `json:"statuses"`
}

func (BulkFannedOut) EventType() string { return "bulk.fanned-out.v1" }

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
