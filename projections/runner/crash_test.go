package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/pg"
)

// Pages do not wait for the disk, so a server that crashes forgets the newest ones. Rows and
// checkpoint forget the same.
func TestRunner_ServerCrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := startServer(t, dir)
	db, err := pg.OpenPool(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	w := &fixture{
		db:    db,
		store: eventstoretest.NewMemory(),
		codec: codec(t),
		logID: uuid.New(),
		next:  map[string]eventstore.Revision{},
	}
	rt := w.runtime(t, nil, tally{family: "apple"}, tally{family: "pear"})
	run(t, rt)
	for range 3 {
		for range 40 {
			w.add(t, "apple-1", 1)
			mustWait(t, rt.Waiter(), w.add(t, "pear-1", 2), "apples", "pears")
		}
		crash(t, dir)
		<-server.Exited()
		if err := server.Close(); err != nil {
			t.Log(err)
		}
		server = startServer(t, dir)
	}
	// Health may still report both as they were before the crash: it does not read the checkpoint.
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples", "pears")
	eventually(t, "the turns go on", func() bool {
		for _, s := range rt.Health(t.Context()) {
			if !s.Active || s.Stop != nil || s.LastErr != nil || s.Head == 0 || s.Lag() > 0 {
				return false
			}
		}
		return true
	})
	db.Reset() // drop connections from before the crash, so that queries of the test do not use them
	w.wantTotals(t, "apples", total{"apple-1", 121, 121})
	w.wantTotals(t, "pears", total{"pear-1", 240, 120})
}

func startServer(t *testing.T, dir string) *pg.Server {
	t.Helper()
	server, err := pg.Start(t.Context(), pg.Config{DataDir: dir, Settings: map[string]string{"fsync": "off"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var exit interface{ ExitCode() int }
		if err := server.Close(); err != nil && !errors.As(err, &exit) { // ignore the exit code of a crash
			t.Error(err)
		}
	})
	return server
}

// crash kills the server, which loses everything that it has not yet written.
func crash(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
}
