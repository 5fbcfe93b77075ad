package verify_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/audit/audittest"
	"github.com/annals-project/annals/projections/audit/verify"
)

// No honest history of the embedded store and the projection is reported: with erasures, scavenges and rebuilds.
func TestNode_NoFalseAlarm(t *testing.T) {
	db := pgtest.Database(t)
	projectiontest.Make(t, db, audit.New(nil, nil))
	for seed := range uint64(rounds(t, 2000) / 100) {
		n := nodetest.Start(t, node.Config{})
		store := nodetest.Open(t, nodetest.ConfigOf(n.Connection()))
		l := audittest.On(t, seed, store, n.Scavenge)
		draw, p := rand.New(rand.NewPCG(seed, 5)), audit.New(store, l.Codec)
		v := verify.Verifier{Log: eventstore.Journal{Store: store, Codec: l.Codec}, Trees: audit.Queries{DB: db}}
		keys, read, kept := map[uuid.UUID]audittest.Key{}, eventstore.Position(0), ""
		projectiontest.Empty(t, db, p)
		v.Applied = func(ctx context.Context, _ eventstore.Position) error {
			if events := l.Events(read); len(events) > 0 {
				read = events[len(events)-1].Position
				projectiontest.Apply(t, db, p, events...)
			}
			return projectiontest.FollowUp(ctx, db, p)
		}
		for _, organization := range l.Organizations {
			keys[organization] = l.NewKey(organization, 0)
			l.AddKey(organization, keys[organization], "")
		}
		for range 6 {
			l.Grow(draw.IntN(30))
			for range draw.IntN(3) {
				l.Erase()
			}
			if draw.IntN(2) == 0 {
				l.Scavenge()
			}
			if draw.IntN(3) == 0 { // a rebuild
				projectiontest.Empty(t, db, p)
				read = 0
			}
			if draw.IntN(2) == 0 {
				organization := l.Organizations[draw.IntN(3)]
				kept = l.Checkpoint(organization, keys[organization], 0)
			}
			report, err := v.Verify(t.Context(), verify.Request{Since: []byte(kept)})
			if err != nil || report.Finding != nil {
				t.Fatalf("seed %d: %+v, %v", seed, report.Finding, err)
			}
		}
	}
}
