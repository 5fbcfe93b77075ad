package recall

import (
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/recall"
)

// Shown returns the texts of the response of a pass that has ended, for its read record.
func (p *Pass) Shown() []reads.Shown {
	list := make([]reads.Shown, 0, len(p.Composed.Entries))
	for _, e := range p.Composed.Entries {
		if b := p.gate.texts[p.texts.key(e)]; b == nil || b.gone {
			continue
		}
		point := p.Ranking.DataPoints[e.Candidate]
		s := reads.Shown{Node: point.node, DataPoint: p.Ranking.IDs[e.Candidate], Revision: point.revision}
		switch e.Memory {
		case recall.Source:
		case recall.InPart:
			if passage := p.texts.passage(e); passage != nil {
				s.Spans = []reads.Span{{passage.start, passage.start + len(passage.content)}}
			}
		default:
			memory := p.Ranking.Memories[e.Candidate][e.Memory]
			s.Node, s.Revision = memory.ID, memory.revision
		}
		list = append(list, s)
	}
	return list
}
