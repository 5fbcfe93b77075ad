// Package export reads a project as lines of JSON: its live data points in the shape in which clients send them, and
// if asked what was derived from each.
//
// The lines are in the order of (occurredAt, source id), which a copy of the project shares with it. An export shows
// the project as it was at one time: a data point that was revised since appears as it was, one that was sent since
// does not appear, and one that was deleted since does not appear either. No transaction stays open while lines are
// written, so that a slow reader holds up no erasure.
package export

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/readlog"
)

const (
	// keyCount is how many data points are listed at once, textCount and textBytes bound those between two marks. A text
	// in a blob is read alone.
	keyCount  = 2048
	textCount = 256
	textBytes = 4 << 20
	// memoryCount is how many memories are read at once.
	memoryCount = 256
)

// Reader reads projects.
type Reader struct {
	DB    *pgxpool.Pool
	Blobs eventstore.BlobReader
}

// Selection is what an export writes.
type Selection struct {
	Project uuid.UUID
	// AsOf is the time that the export shows (Reader.AsOf).
	AsOf time.Time
	// After is where an earlier run stopped, nil for the beginning.
	After *Place
	// Memories adds what was derived.
	Memories bool
}

// Place is the place of a data point in an export.
type Place struct {
	OccurredAt time.Time `json:"occurredAt"`
	SourceID   string    `json:"sourceId"`
}

// Mark is how far an export is: the lines up to the one of a data point, and of its memories, are complete.
type Mark struct {
	Place
	// Points and Memories count the lines since the last mark. Audiences are the slugs in them, each once.
	Points    int      `json:"points"`
	Memories  int      `json:"memories"`
	Audiences []string `json:"audiences,omitempty"`
}

// AsOf returns the time that an export shows which begins now: everything that was answered before is older. The data
// points projection has applied the head of the log.
func (r Reader) AsOf(ctx context.Context, project uuid.UUID, now time.Time) (at time.Time, err error) {
	// The clocks of processes differ, so an answered send may be from the future.
	err = r.DB.QueryRow(ctx, `select greatest($2::timestamptz,
		(select max(accepted_at) from datapoints.data_points where project_id = $1))`, project, now).Scan(&at)
	if err != nil {
		return at, fmt.Errorf("find the newest send: %w", err)
	}
	return at.UTC(), nil
}

// Write writes the selected lines to a writer, and calls mark between data points. Each text is in memory as a whole,
// one at a time: a line is begun only once it can be completed.
func (r Reader) Write(ctx context.Context, s Selection, to io.Writer, mark func(Mark) error) error {
	lines := &lineWriter{to: bufio.NewWriterSize(to, 64<<10)}
	e := &run{Reader: r, Selection: s, to: lines, audiences: map[uuid.UUID]readers{}}
	for {
		keys, err := r.keys(ctx, e.Selection)
		if err != nil || len(keys) == 0 {
			return err
		}
		for len(keys) > 0 {
			n, size := 0, 0
			for n < len(keys) && n < textCount {
				if size += keys[n].size; n > 0 && size > textBytes {
					break
				}
				n++
			}
			done, err := e.page(ctx, keys[:n])
			if err == nil {
				err = e.to.to.Flush()
			}
			if err == nil {
				err = mark(done)
			}
			if err != nil {
				return err
			}
			e.After, keys = &done.Place, keys[n:]
		}
	}
}

// run is one export.
type run struct {
	Reader
	Selection
	to *lineWriter
	// audiences are the readers of the audiences that are known.
	audiences map[uuid.UUID]readers
}

// page writes the lines of some data points. Those that were deleted since have none.
func (e *run) page(ctx context.Context, keys []key) (done Mark, err error) {
	done.Place = keys[len(keys)-1].Place
	found, err := e.texts(ctx, keys)
	if err != nil {
		return done, err
	}
	if err := show(ctx, keys, found); err != nil {
		return done, err
	}
	memories := &memoryReader{db: e.DB, project: e.Project, keys: keys}
	slugs := map[string]bool{}
	for i, k := range keys {
		p, live := found[k.id]
		if !live {
			continue
		}
		if live, err = e.load(ctx, p); err != nil {
			return done, err
		}
		if !live {
			continue
		}
		if p.readers, err = e.readersOf(ctx, k.audience, p.author); err != nil {
			return done, err
		}
		if p.readers.slug != "" {
			slugs[p.readers.slug] = true
		}
		if err := e.to.dataPoint(k.Place, p); err != nil {
			return done, err
		}
		done.Points++
		if !e.Memories {
			continue
		}
		n, err := memories.each(ctx, i, func(d derived) error {
			if err := readlog.From(ctx).Show(ctx, reads.Export, reads.Shown{Node: d.id}); err != nil {
				return err
			}
			return e.to.memory(k.SourceID, d)
		})
		if err != nil {
			return done, err
		}
		done.Memories += n
	}
	done.Audiences = slices.Sorted(maps.Keys(slugs))
	return done, nil
}

// show adds the texts of a page to the read of the request.
func show(ctx context.Context, keys []key, found map[uuid.UUID]*text) error {
	read := readlog.From(ctx)
	if read == nil {
		return nil
	}
	var shown []reads.Shown
	for _, k := range keys {
		if found[k.id] != nil {
			shown = append(shown, reads.Shown{
				Node: datapoint.NodeID(k.id, k.revision), DataPoint: k.id, Revision: k.revision,
			})
		}
	}
	return read.Show(ctx, reads.Export, shown...)
}

// load reads the texts of a data point that are in blobs. It returns false if one was erased.
func (e *run) load(ctx context.Context, p *text) (live bool, err error) {
	for _, part := range []struct {
		from *blob.Ref
		to   *[]byte
	}{{p.contentBlob, &p.content}, {p.metadataBlob, &p.metadata}} {
		if part.from == nil {
			continue
		}
		*part.to, err = e.Blobs.ReadBlob(ctx, *part.from)
		if lost, is := errors.AsType[*eventstore.BlobError](err); is && lost.Missing {
			// The deletion tombstones the blob. Without one, the text is lost, and the export must not hide that.
			return false, e.requireDeleted(ctx, p.id, err)
		}
		if err != nil {
			return false, fmt.Errorf("read text: %w", err)
		}
	}
	return true, nil
}
