package project

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
)

// ReadsMode is whether it is recorded who was shown which texts of a project. The zero value is ReadsOff.
type ReadsMode string

// The modes.
const (
	ReadsOff ReadsMode = "off"
	// ReadsKept appends a read record within a second of the answer.
	ReadsKept ReadsMode = "kept"
	// ReadsProved appends it before the answer.
	ReadsProved ReadsMode = "proved"
)

// Valid reports whether a project may be set to the mode.
func (m ReadsMode) Valid() bool { return m == ReadsOff || m == ReadsKept || m == ReadsProved }

// Recorded is the mode of projects whose reads are recorded, "" for the others: for what is asked at each call.
func (m ReadsMode) Recorded() ReadsMode {
	if m == ReadsOff {
		return ""
	}
	return m
}

// Reads is the setting of a project.
type Reads struct {
	Mode ReadsMode
	// Days is how many days a record stays in the log.
	Days int
}

// DefaultReads is the setting of a project of which none was set.
func DefaultReads() Reads { return Reads{ReadsOff, limit.ReadDays} }

// ReadsSet sets whether the reads of a project are recorded, and for how many days.
type ReadsSet struct {
	ProjectID uuid.UUID `json:"projectId"`
	Mode      ReadsMode `json:"mode"`
	Days      int       `json:"days"`
	SetAt     time.Time `json:"setAt"`
}

func (ReadsSet) EventType() string { return "project.reads-set.v1" }

// SetReads decides the setting of reads. One that is set already stays as it is. The fault is invalid-request.
func (s State) SetReads(project uuid.UUID, reads Reads, at time.Time) ([]event.Event, error) {
	switch {
	case !reads.Mode.Valid():
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "reads is %.20q: want %s, %s or %s",
			reads.Mode, ReadsOff, ReadsKept, ReadsProved)
	case reads.Days < limit.LeastReadDays || reads.Days > limit.MostReadDays:
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "read records are kept for %d to %d days, not %d",
			limit.LeastReadDays, limit.MostReadDays, reads.Days)
	case s.ReadsSetting() == reads:
		return nil, nil
	}
	return []event.Event{&ReadsSet{ProjectID: project, Mode: reads.Mode, Days: reads.Days, SetAt: at}}, nil
}

// ReadsSetting is the setting of reads.
func (s State) ReadsSetting() Reads {
	if s.reads.Mode == "" {
		return DefaultReads()
	}
	return s.reads
}
