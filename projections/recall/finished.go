package recall

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// What an explanation reads of a pass that has ended. It holds until its snapshot ends.

// Snapshot is the database as the pass read it.
func (p *Pass) Snapshot() Snapshot { return p.gate.db }

// Checked reports whether the gate was asked about a data point.
func (p *Pass) Checked(dataPoint uuid.UUID) bool {
	_, checked := p.gate.checkedDataPoints[dataPoint]
	return checked
}

// HasPassed reports whether a data point passed the gate.
func (p *Pass) HasPassed(dataPoint uuid.UUID) bool { return p.gate.dataPoints[dataPoint] != nil }

// Passed is how many data points passed the gate, with the neighbours.
func (p *Pass) Passed() int { return len(p.gate.dataPoints) }

// IsNeighbour reports whether a data point passed and is next to a candidate in the conversation.
func (p *Pass) IsNeighbour(dataPoint uuid.UUID) bool {
	row := p.gate.dataPoints[dataPoint]
	return row != nil && row.isNeighbour
}

// MayHoldMore reports whether the index may hold more sources than the search asked for.
func (p *Pass) MayHoldMore() bool { return p.mayHoldMore(p.Found) }

// Without are the signals that the ranker leaves out.
func (p *Pass) Without() []string { return p.service.config.Without }

// HasSemantic reports whether the service searches by embeddings.
func (p *Pass) HasSemantic() bool { return p.service.config.Semantic != nil }

// HasAudiences reports whether the service knows the audiences of the project.
func (p *Pass) HasAudiences() bool { return p.service.config.Viewers != nil }

// Cost returns what a document costs; ok is false if its text is gone, or not read since too much was.
func (p *Pass) Cost(ctx context.Context, e recall.Entry) (cost recall.Cost, ok bool) {
	return p.texts.cost(ctx, e)
}

// Err is the error of reading the costs.
func (p *Pass) Err() error { return p.texts.err }

// Share is how well a passage in the response matches, as a share of the best one of its text; 1 if it is none.
func (p *Pass) Share(e recall.Entry) float64 {
	if passage := p.texts.passage(e); passage != nil {
		return passage.share
	}
	return 1
}

// Blob is where the content of a candidate is, nil if it is in a row.
func (p *Pass) Blob(candidate int) *blob.Ref { return p.Ranking.DataPoints[candidate].big }

// HasRoomFor reports whether this pass may read that many bytes more of long texts.
func (p *Pass) HasRoomFor(bytes int64) bool { return p.gate.counted+bytes <= MaxRead }

// Passages returns how many passages of a candidate were found. read is false if they were not looked for, and
// mayHave is false if its text can't have several.
func (p *Pass) Passages(candidate int) (n int, read, mayHave bool) {
	passages, read := p.gate.excerpted[p.texts.sourceKey(candidate)]
	return len(passages), read, p.texts.mayHavePassages(candidate)
}

// GaveUp reports whether the pass reads no more passages, since MaxUnfit texts in a row had none that fits.
func (p *Pass) GaveUp() bool { return p.gate.unfit >= MaxUnfit }

// Content reads the content of a revision, nil if it is gone.
func (p *Pass) Content(ctx context.Context, dataPoint uuid.UUID, revision int) ([]byte, error) {
	key := revisionKey{dataPoint, revision}
	bodies, err := readBodies(ctx, p.gate.db, []part{{revisionKey: key, content: true}})
	if err != nil || bodies[key] == nil {
		return nil, err
	}
	if ref := bodies[key].contentBlob; ref != nil {
		return p.texts.blob(ctx, ref), p.texts.err
	}
	return bodies[key].content, nil
}

// Search asks the index that the pass asked.
func (p *Pass) Search(ctx context.Context, q recallindex.Query) (recallindex.Found, error) {
	return p.service.config.Index.Search(ctx, q)
}

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
