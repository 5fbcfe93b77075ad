package recall

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/projections/recallindex"
)

// Judged is what the gate passes of candidates: the live revision of each data point, with whether
// it is in the window; and of each memory when it was superseded, nil for not.
type Judged struct {
	Revisions map[uuid.UUID]int
	Within    map[uuid.UUID]bool
	Memories  map[uuid.UUID]*time.Time
}

// Judge lets the gate authorize any candidates.
func Judge(
	ctx context.Context, db *pgxpool.Pool, q Query, now time.Time, dataPoints, memories []uuid.UUID,
) (Judged, error) {
	judged := Judged{map[uuid.UUID]int{}, map[uuid.UUID]bool{}, map[uuid.UUID]*time.Time{}}
	f := new(candidates)
	for _, id := range dataPoints {
		f.Sources.Hits = append(f.Sources.Hits, recallindex.Hit{Key: recallindex.Key{DataPoint: id}})
	}
	for _, id := range memories {
		f.Memories.Hits = append(f.Memories.Hits, recallindex.Hit{Key: recallindex.Key{Memory: id}})
	}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		g := newGate(tx, q, now)
		f.arrange(&question{Query: q})
		if err := g.authorize(ctx, f, len(f.Order), false); err != nil {
			return err
		}
		for id, p := range g.dataPoints {
			judged.Revisions[id], judged.Within[id] = p.revision, p.inWindow
		}
		for id, l := range g.memories {
			judged.Memories[id] = l.supersededAt
		}
		return nil
	})
	return judged, err
}

// Share is how many recalls of one organization run at once.
func (s *Service) Share() int64 { return s.slots.Share() }
