package secret

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

var errGenerated = errors.New("a key is generated")

// opens opens the seal keys of a database as a start does, which must not generate one.
func opens(t *testing.T, db *pgxpool.Pool, known ...[]byte) error {
	t.Helper()
	keys, err := OpenKeys(t.Context(), db, known, func() ([]byte, error) { return nil, errGenerated }, VaultTable())
	if err == nil && len(keys) != len(known) {
		t.Errorf("%d keys, want the %d that are known", len(keys), len(known))
	}
	return err
}

// refuses wants a start to be refused for the lack of keys.
func refuses(t *testing.T, name string, err error, wanted ...[]byte) {
	t.Helper()
	refused, is := errors.AsType[*SealKeyError](err)
	names := Names(wanted)
	slices.Sort(names)
	if !is || !slices.Equal(refused.Wanted, names) {
		t.Errorf("%s: %v, want a refusal that names %v", name, err, names)
	}
}

func TestOpenKeys_OfTheFirstProcess(t *testing.T) {
	db := pgtest.Database(t)
	one, two := sealKey(1), sealKey(2)
	if err := opens(t, db); !errors.Is(err, errGenerated) {
		t.Errorf("without a key where nothing is sealed: %v", err)
	}
	runtest.Must(t, opens(t, db, one))
	runtest.Must(t, opens(t, db, one))
	runtest.Must(t, opens(t, db, two, one))
	refuses(t, "another key", opens(t, db, two), one)
	refuses(t, "no key", opens(t, db), one)
	refuses(t, "a backup with another key", CheckKeys(t.Context(), db, [][]byte{two}), one)
	runtest.Must(t, CheckKeys(t.Context(), db, [][]byte{one}))

	runtest.Must(t, WriteCheck(t.Context(), db, sealer(t, two, one))) // the end of a rotation
	runtest.Must(t, opens(t, db, one, two))
	runtest.Must(t, opens(t, db, two))
	refuses(t, "the retired key", opens(t, db, one), two)
}

// A database of a version before has no check value yet. It is not written by a process that cannot open what is there.
func TestOpenKeys_WhereValuesAreSealedAlready(t *testing.T) {
	db := pgtest.Database(t)
	one, two, three := sealKey(1), sealKey(2), sealKey(3)
	keep(t, Vault{DB: db, Sealer: sealer(t, one)}, uuid.New(), "svc_sk_one")
	refuses(t, "no key", opens(t, db), one)
	refuses(t, "another key", opens(t, db, two), one)
	keep(t, Vault{DB: db, Sealer: sealer(t, two)}, uuid.New(), "svc_sk_two") // by a second process, with a key of its own
	refuses(t, "one of two keys", opens(t, db, one), two)
	refuses(t, "neither", opens(t, db, three), one, two)
	runtest.Must(t, opens(t, db, three, two, one))
	refuses(t, "a new key, before the values are sealed with it", opens(t, db, three), two)

	lost, wanted, accepted, err := Losses(t.Context(), db, [][]byte{three}, VaultTable())
	names := slices.Sorted(slices.Values(Names([][]byte{one, two})))
	if err != nil || accepted || len(lost) != 1 || lost[0].Count != 2 || !slices.Equal(wanted, names) {
		t.Errorf("lost %+v of the keys %v, %v", lost, wanted, err)
	}
	runtest.Must(t, WriteCheck(t.Context(), db, sealer(t, three))) // accepts the loss
	if _, _, accepted, err := Losses(t.Context(), db, [][]byte{three}, VaultTable()); err != nil || !accepted {
		t.Errorf("the loss is not accepted, %v", err)
	}
	runtest.Must(t, opens(t, db, three))
}

// Of processes that start at once with keys of their own, one decides.
func TestOpenKeys_AtOnce(t *testing.T) {
	db := pgtest.Database(t)
	var all sync.WaitGroup
	var errs [4]error
	for n := range errs {
		all.Go(func() {
			generate := func() ([]byte, error) { return sealKey(byte(n)), nil }
			_, errs[n] = OpenKeys(t.Context(), db, nil, generate, VaultTable())
		})
	}
	all.Wait()
	started := 0
	for _, err := range errs {
		if _, refused := errors.AsType[*SealKeyError](err); err == nil {
			started++
		} else if !refused {
			t.Error(err)
		}
	}
	if started != 1 {
		t.Errorf("%d processes started with keys of their own", started)
	}
}
