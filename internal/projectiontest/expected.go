package projectiontest

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/metering"
)

// SendState is the expected state of a send.
type SendState struct {
	Items int
	// Bytes and CreditTenths are the sums of the items with a revision. Before the fan-out of a batch
	// is complete, they are the sums of its priced items.
	Bytes, CreditTenths int64
	// Phase is queued, processing, captured, indexed, failed or nothing-changed.
	Phase string
	// Counts reports that a failed send counts: a live data point of it failed, and no newer
	// revision of that data point succeeded.
	Counts bool
}

// Totals are the expected totals of a project.
type Totals struct {
	// Live counts live data points, Ingested charged items. CreditTenths is the price of the items.
	Live, Ingested, CreditTenths int64
	// Scopes count the live data points by audience, together with the memories of their newest
	// captured revisions.
	Scopes map[uuid.UUID]int64
	// Raw, Comprehension and Failed count sends by progress.
	Raw, Comprehension, Failed int64
}

// Sends is the state of each send.
func (h *History) Sends() map[uuid.UUID]SendState {
	states := map[uuid.UUID]SendState{}
	for _, s := range h.sends {
		state := SendState{Items: len(s.dataPoints)}
		for ordinal := range s.dataPoints {
			if s.charged(ordinal) {
				state.Bytes += size(ordinal)
				state.CreditTenths += price(ordinal)
			}
		}
		state.Phase = h.phaseOf(s)
		state.Counts = state.Phase == "failed" && s.countsFailure()
		states[s.id] = state
	}
	return states
}

// Totals returns the totals of each project that has a send.
func (h *History) Totals() map[uuid.UUID]Totals {
	totals := map[uuid.UUID]Totals{}
	for _, s := range h.sends {
		sum := totals[s.project]
		if sum.Scopes == nil {
			sum.Scopes = map[uuid.UUID]int64{}
		}
		for ordinal := range s.dataPoints {
			if s.charged(ordinal) {
				sum.Ingested++
				sum.CreditTenths += price(ordinal)
			}
		}
		switch phase := h.phaseOf(s); {
		case phase == "queued":
			sum.Raw++
		case phase == "processing", phase == "captured":
			sum.Comprehension++
		case phase == "failed" && s.countsFailure():
			sum.Failed++
		}
		totals[s.project] = sum
	}
	for _, p := range h.dataPoints {
		if sum, ok := totals[p.project]; ok && p.exists && live(p) {
			sum.Live++
			sum.Scopes[p.state.Audience] += 1 + p.memories()
			totals[p.project] = sum
		}
	}
	return totals
}

// memories returns the number of memories of the newest captured revision.
func (p *point) memories() int64 {
	newest, memories := 0, 0
	for _, w := range p.work {
		if w.phase == "captured" && w.revision > newest {
			newest, memories = w.revision, w.memories
		}
	}
	return int64(memories)
}

// size and price return those of an item, by its place in its send.
func size(ordinal int) int64 { return int64(metering.BytesPerCredit*ordinal + 10) }

func price(ordinal int) int64 { return int64(10 * (1 + ordinal)) }

// month returns the month that a send counts in. The request id selects one of two.
func (s *send) month() string { return [...]string{"2026-11", "2026-12"}[s.request[15]%2] }

// charged reports whether an item costs something.
func (s *send) charged(ordinal int) bool {
	if !s.fanned {
		return !s.unpriced[ordinal]
	}
	o := s.outcome(ordinal)
	return o == ingestion.Created || o == ingestion.Updated
}

// outcome returns the outcome of an item, "" before the log has one.
func (s *send) outcome(ordinal int) string {
	o := s.fannedOut[ordinal]
	switch {
	case s.recorded != nil:
		return s.recorded[ordinal].Outcome
	case o == nil || o.Outcome == ingestion.Deleted: // the end of the fan-out, still missing, reports it
		return ""
	default:
		return o.Outcome
	}
}

// workOf returns the work on an item, nil if there is none.
func (s *send) workOf(ordinal int) *work {
	for _, w := range s.work {
		if w.ordinal == ordinal {
			return w
		}
	}
	return nil
}

// countOf counts the items of a send by phase, and as "deleted" and "unchanged". It does not count
// items that are not fanned out.
func countOf(s *send) map[string]int {
	count := map[string]int{}
	for ordinal, p := range s.dataPoints {
		switch o := s.outcome(ordinal); {
		case o == "":
		case o == ingestion.Unchanged || o == ingestion.Moved:
			count["unchanged"]++
		case o == ingestion.Deleted || !live(p):
			count["deleted"]++
		case s.workOf(ordinal) == nil:
			count["captured"]++ // it was history when it was stored
		default:
			count[s.workOf(ordinal).phase]++
		}
	}
	return count
}

// phaseOf returns the lowest phase of the items of a send, unless its own stream or a watermark
// ended it.
func (h *History) phaseOf(s *send) string {
	count, wiped := countOf(s), false
	for _, w := range h.wipes {
		wiped = wiped || w.send == s && w.fanned
	}
	items := len(s.dataPoints)
	switch {
	case count["unchanged"] == items:
		return "nothing-changed"
	case s.verdict == "indexed", wiped, !s.searchableAt.IsZero():
		return "indexed"
	case !s.fanned && s.verdict == "failed": // given up
		return "failed"
	case !s.fanned:
		return "queued"
	case count["unchanged"]+count["deleted"] == items:
		return "indexed"
	case s.verdict == "failed":
		return "failed"
	case count["queued"] > 0:
		return "queued"
	case count["processing"] > 0:
		return "processing"
	default:
		return "captured"
	}
}

// countsFailure reports whether a failure of the send counts. If the index failed, it counts because of
// the captured items.
func (s *send) countsFailure() bool {
	if !s.fanned {
		return true
	}
	for _, w := range s.work {
		if s.outcome(w.ordinal) == ingestion.Deleted || !live(w.point) ||
			w.phase != "failed" && !(s.unindexed && w.phase == "captured") {
			continue
		}
		newer := false
		for _, other := range w.point.work {
			newer = newer || other.phase == "captured" && other.revision > w.revision
		}
		if !newer {
			return true
		}
	}
	return false
}
