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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/runner"
)

type noBlobs struct{}

func (noBlobs) ReadBlob(context.Context, blob.Ref) ([]byte, error) {
	return nil, eventstore.ErrUnavailable
}

// rebuildSends returns how many sends a rebuild is measured on: ANNALS_TEST_REBUILD_SENDS, or
// 20,000. Each send is two events.
func rebuildSends(b *testing.B) int {
	b.Helper()
	text := os.Getenv("ANNALS_TEST_REBUILD_SENDS")
	if text == "" {
		return 20_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// BenchmarkRebuild rebuilds each projection from a node, through the driver. cpu-µs/event is this
// process's, which contains the node, pg-µs/event that of Postgres, and x-bare-read how many times as
// long it takes as to read the log without decoding it.
func BenchmarkRebuild(b *testing.B) {
	log := slog.New(slog.DiscardHandler)
	store := nodetest.Store(b, node.Config{Dir: filepath.Join(b.TempDir(), "log")})
	codec := eventstoretest.Codec(b)
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
	runtime, err := runner.New(runner.Config{
		DB: db, Store: store, Codec: codec, Logger: log, LogID: func(context.Context) (uuid.UUID, error) {
			return logID, nil
		},
		Projectors: []projections.Projector{
			access.New(), datapoints.New(noBlobs{}), memories.New(noBlobs{}, log),
			recallindex.New(index, eventstore.Journal{Store: store, Codec: codec}, recall.NewAnalyzers(), log),
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	bare := readRate(b, store)
	for _, name := range runtime.Names() {
		b.Run(name, func(b *testing.B) {
			var events int64
			began, cpu, postgres := time.Now(), used(b), usedByPostgres(b, db)
			for b.Loop() {
				var last runner.RebuildProgress
				if err := runtime.Rebuild(b.Context(), name, func(p runner.RebuildProgress) { last = p }); err != nil {
					b.Fatal(err)
				}
				events += last.Events
			}
			rate := float64(events) / time.Since(began).Seconds()
			b.ReportMetric(rate, "events/s")
			b.ReportMetric(bare/rate, "x-bare-read")
			b.ReportMetric(float64((used(b)-cpu).Microseconds())/float64(events), "cpu-µs/event")
			b.ReportMetric(float64((usedByPostgres(b, db)-postgres).Microseconds())/float64(events), "pg-µs/event")
		})
	}
	// As "annals rebuild all" does without a server.
	b.Run("all", func(b *testing.B) {
		var events atomic.Int64
		cpu, postgres := used(b), usedByPostgres(b, db)
		for b.Loop() {
			report := func(p runner.RebuildProgress) {
				if p.Done {
					events.Add(p.Events)
				}
			}
			if err := runtime.RebuildAll(b.Context(), runtime.Names(), runner.RebuildOptions{}, report); err != nil {
				b.Fatal(err)
			}
		}
		each := float64(events.Load()) / float64(len(runtime.Names()))
		b.ReportMetric(float64((used(b)-cpu).Microseconds())/each, "cpu-µs/event")
		b.ReportMetric(float64((usedByPostgres(b, db)-postgres).Microseconds())/each, "pg-µs/event")
	})
}

// readRate returns how many events a second are read from the log in pages.
func readRate(b *testing.B, store eventstore.Store) float64 {
	b.Helper()
	began, events := time.Now(), 0
	for after := eventstore.Position(0); ; {
		page, err := store.ReadAll(b.Context(), after, feed.PageEvents)
		if err != nil {
			b.Fatal(err)
		}
		if len(page) == 0 {
			return float64(events) / time.Since(began).Seconds()
		}
		events, after = events+len(page), page[len(page)-1].Position
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

// usedByPostgres is the CPU time of a server on this machine: of its running and its ended
// processes.
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
			continue // it has ended
		}
		// The fields after the name in parentheses: the state, the parent, and from the twelfth on the
		// times.
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

// fill writes sends from acceptance to end, with 64 writers.
func fill(b *testing.B, store eventstore.Store, codec *eventstore.Codec) {
	b.Helper()
	project, at := uuid.New(), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	write := func(name string, expected eventstore.Revision, events ...event.Event) eventstore.Appended {
		var done eventstore.Appended
		proposed, err := codec.EncodeAll(events,
			event.NewMeta("key:bench", time.Now()))
		if err == nil {
			done, err = store.Append(b.Context(), name, expected, proposed)
		}
		if err != nil {
			b.Error(err)
		}
		return done
	}
	watermark := eventstore.NoStream
	searchable := func(upTo eventstore.Position) {
		watermark = write(stream.Pipeline, watermark, pipeline.Searchable{Position: uint64(upTo), SearchableAt: at}).Revision
	}
	const writers = 64
	sends := rebuildSends(b)
	done := make(chan struct{})
	for w := range writers {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := w; i < sends; i += writers {
				id, send := uuid.New(), uuid.Must(uuid.NewV7())
				text := fmt.Sprintf("Person %d likes number %d and lives in town %d. ", i, i*7,
					i%97) + strings.Repeat("They talked about the plan for spring. ", 6)
				write(stream.Name(stream.DataPoint, id), eventstore.NoStream, datapoint.RevisionAccepted{
					Send: datapoint.Send{
						ProjectID: project, IngestionID: send, Items: 1, AcceptedAt: at, RequestID: send,
						Bytes: int64(len(text)), CreditTenths: 10, Month: "2026-11",
					},
					States: datapoint.States{Effect: datapoint.State{
						SourceID: fmt.Sprint("source ", i), Revision: 1, LastNumber: 1,
						OccurredAt: at, IngestionID: send,
					}},
					Body: datapoint.Body{Content: datapoint.Text{Inline: text}},
				})
				captured := write(stream.Name(stream.Memory, id), eventstore.NoStream,
					memory.Derived{
						ProjectID: project, IngestionID: send, Revision: 1, DerivedAt: at, OccurredAt: at,
						Memories: []memory.Memory{
							{ID: uuid.New(), Kind: "claim", Content: fmt.Sprintf("Person %d likes number %d", i, i*7), Excerpt: text[:20], End: 20, Inputs: []uuid.UUID{id}},
						},
					})
				// One writer confirms what was captured, about once in 250 sends.
				if w == 0 && i/writers%4 == 3 {
					searchable(captured.Position)
				}
			}
		}()
	}
	for range writers {
		<-done
	}
	head, err := store.Head(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	searchable(head)
}
