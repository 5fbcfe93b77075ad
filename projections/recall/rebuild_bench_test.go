package recall_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
)

type noBlobs struct{}

func (noBlobs) ReadBlob(context.Context, blob.Ref) ([]byte, error) {
	return nil, eventstore.ErrUnavailable
}

// rebuildSends is how many sends a rebuild is measured on; each is four events.
const rebuildSends = 20_000

// BenchmarkRebuild rebuilds each projection from a node, behind the driver. cpu-µs/event is this process's, which holds the node too,
// pg-µs/event that of Postgres.
func BenchmarkRebuild(b *testing.B) {
	log := slog.New(slog.DiscardHandler)
	n, err := node.Start(b.Context(), node.Config{Dir: filepath.Join(b.TempDir(), "log"), Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := n.Close(); err != nil {
			b.Error(err)
		}
	})
	c := n.Connection()
	store, err := esdb.Open(esdb.Config{ConnectionString: c.ConnectionString(), Username: c.Username, Password: c.Password, RootCAs: c.RootCAs, Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		b.Fatal(err)
	}
	fill(b, store, codec)
	index, err := bleve.Open(filepath.Join(b.TempDir(), "index"), bleve.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := index.Close(); err != nil {
			b.Error(err)
		}
	})
	logID, db := uuid.New(), pgtest.Database(b)
	runtime, err := projections.New(projections.Config{
		DB: db, Store: store, Codec: codec, Logger: log, LogID: func(context.Context) (uuid.UUID, error) { return logID, nil },
		Projectors: []projections.Projector{
			access.New(), datapoints.New(noBlobs{}), memories.New(noBlobs{}, log),
			recallindex.New(index, recallindex.Log{Store: store, Codec: codec}, recall.NewAnalyzer(), log),
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range runtime.Names() {
		b.Run(name, func(b *testing.B) {
			var events int64
			began, cpu, postgres := time.Now(), used(b), usedByPostgres(b, db)
			for b.Loop() {
				var last projections.RebuildProgress
				if err := runtime.Rebuild(b.Context(), name, func(p projections.RebuildProgress) { last = p }); err != nil {
					b.Fatal(err)
				}
				events += last.Events
			}
			b.ReportMetric(float64(events)/time.Since(began).Seconds(), "events/s")
			b.ReportMetric(float64((used(b)-cpu).Microseconds())/float64(events), "cpu-µs/event")
			b.ReportMetric(float64((usedByPostgres(b, db)-postgres).Microseconds())/float64(events), "pg-µs/event")
		})
	}
}

func used(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// usedByPostgres is the CPU time of a server on this machine: of its processes, and of those that it had.
func usedByPostgres(b *testing.B, db *pgxpool.Pool) time.Duration {
	b.Helper()
	var pid int
	if err := db.QueryRow(b.Context(), `select (string_to_array(pg_read_file('postmaster.pid'), E'\n'))[1]::int`).Scan(&pid); err != nil {
		b.Fatal(err)
	}
	const tick = 10 * time.Millisecond
	processes, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	var ticks time.Duration
	for _, path := range processes {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it ended in the meantime
		}
		// What stands behind the name, which is in parentheses: the state, the parent, and from the twelfth on the times.
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		own := path == fmt.Sprintf("/proc/%d/stat", pid)
		if !own && fields[1] != strconv.Itoa(pid) {
			continue
		}
		for _, field := range fields[11:15] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			ticks += time.Duration(n)
		}
	}
	return ticks * tick
}

// fill writes sends from their acceptance to their end, as ten writers would.
func fill(b *testing.B, store eventstore.Store, codec *eventstore.Codec) {
	b.Helper()
	project, at := uuid.New(), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	write := func(name string, events ...event.Event) {
		proposed, err := codec.EncodeAll(events, event.Meta{CommandID: uuid.New(), RequestID: uuid.New(), Principal: "key:bench"})
		if err == nil {
			_, err = store.Append(b.Context(), name, eventstore.NoStream, proposed)
		}
		if err != nil {
			b.Error(err)
		}
	}
	const writers = 10
	done := make(chan struct{})
	for w := range writers {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := w; i < rebuildSends; i += writers {
				id, send := uuid.New(), uuid.Must(uuid.NewV7())
				text := fmt.Sprintf("Person %d likes number %d and lives in town %d. ", i, i*7, i%97) + strings.Repeat("They talked about the plan for spring. ", 6)
				write(stream.Name(stream.DataPoint, id), datapoint.RevisionAccepted{
					Send:     datapoint.Send{ProjectID: project, IngestionID: send, Items: 1, AcceptedAt: at, RequestID: send, Bytes: int64(len(text)), CreditTenths: 10, Month: "2026-11"},
					Standing: datapoint.Standing{Effect: datapoint.State{SourceID: fmt.Sprint("source ", i), Revision: 1, LastNumber: 1, OccurredAt: at, IngestionID: send}},
					Body:     datapoint.Body{Content: datapoint.Text{Inline: text}},
				})
				write(stream.Name(stream.Memory, id),
					memory.DerivationStarted{ProjectID: project, IngestionID: send, Revision: 1, Attempt: 1, StartedAt: at},
					memory.Derived{ProjectID: project, IngestionID: send, Revision: 1, DerivedAt: at, OccurredAt: at, Memories: []memory.Memory{
						{ID: uuid.New(), Kind: "claim", Content: fmt.Sprintf("Person %d likes number %d", i, i*7), Excerpt: text[:20], End: 20, Inputs: []uuid.UUID{id}},
					}})
				write(stream.Name(stream.Ingestion, send), ingestion.Indexed{ProjectID: project, IndexedAt: at})
			}
		}()
	}
	for range writers {
		<-done
	}
}
