package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/seedtest"
)

// The load of a chaos test, and how long a fault lasts and the next one waits, at most. The load is a
// tenth more than what must be accepted: calls that wait for a fault are made up for.
const (
	chaosSends   = 220 // a second
	chaosRecalls = 110 // a second
	chaosDeletes = 5   // a second
	chaosFault   = 8 * time.Second
	chaosPause   = 3 * time.Second
)

// TestChaos runs two processes of each role on a Postgres, an event store and, where
// ANNALS_TEST_ELASTICSEARCH names one, an Elasticsearch for ANNALS_CHAOS (such as 60s). Without an
// Elasticsearch it runs two processes of all roles. Under load a random process is killed or frozen
// every few seconds. At the end every acknowledged send is searchable, no deleted text was in an
// answer after its deletion was acknowledged, and a rebuild gives the same rows. ANNALS_SEED repeats
// the faults.
func TestChaos(t *testing.T) {
	text := os.Getenv("ANNALS_CHAOS")
	if text == "" {
		t.Skip("ANNALS_CHAOS names no duration")
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	seed := seedtest.Of(t)
	d := newChaosDeployment(t)
	d.start()
	l := newChaosLoad(t, d, seed)

	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var load sync.WaitGroup
	l.run(ctx, &load)
	faults := d.breakParts(ctx, rand.New(rand.NewPCG(seed, 0)))
	l.keepRates()
	d.heal() // a process that ended by itself in the last fault may be what the open calls wait for
	load.Wait()
	t.Logf("%s; %s; %s", faults, l.rates(lasts), d.endedAlone())
	l.wantRecalls(lasts)
	if t.Failed() {
		return
	}

	l.settle()
	l.check("after the load")
	tables := d.quiesce()
	d.rebuild()
	d.wantRows(tables)
	d.start()
	l.check("after the rebuild")
}

// chaosFaults counts what was done to the processes.
type chaosFaults struct{ kills, freezes int }

func (f chaosFaults) String() string {
	return fmt.Sprintf("%d kills, %d freezes", f.kills, f.freezes)
}

// breakParts kills or freezes one process after the other until the context ends. It leaves every
// process running.
func (d *chaosDeployment) breakParts(ctx context.Context, rng *rand.Rand) (done chaosFaults) {
	d.t.Helper()
	for ctx.Err() == nil {
		for _, p := range d.parts {
			p.revive()
		}
		p := d.parts[rng.IntN(len(d.parts))]
		lasts := time.Duration(rng.Int64N(int64(chaosFault)))
		if rng.IntN(2) == 0 {
			d.t.Logf("kill %s for %s", p.name, lasts)
			p.kill()
			passes(ctx, lasts)
			p.begin()
			done.kills++
		} else {
			d.t.Logf("freeze %s for %s", p.name, lasts)
			p.freeze()
			passes(ctx, lasts)
			p.thaw()
			done.freezes++
		}
		passes(ctx, time.Duration(rng.Int64N(int64(chaosPause))))
	}
	return done
}

// passes lets time pass: the length of a fault is what the test is about.
func passes(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
