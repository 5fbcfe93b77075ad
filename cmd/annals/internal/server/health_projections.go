package server

import (
	"strings"

	"github.com/annals-project/annals/internal/condition"
)

// projections returns how far each projection is.
func (h *health) projections() []condition.Projection {
	now := h.reading.get()
	problems := map[string]condition.Reason{}
	for _, n := range h.projectionsNotReady(now) {
		problems[strings.TrimPrefix(n.Part, "projection ")] = n.Reason
	}
	list := make([]condition.Projection, len(now.projections))
	for i, s := range now.projections {
		list[i] = condition.Projection{
			Name: s.Name, Version: s.Version, Position: uint64(s.Position), Lag: uint64(s.Lag()), IsFedHere: s.Active,
			IsStopped: s.Stop != nil, Problem: problems[s.Name],
		}
	}
	return list
}
