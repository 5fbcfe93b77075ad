package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// Reader reads histories.
type Reader struct {
	DB    *pgxpool.Pool
	Log   streamReader
	Blobs eventstore.BlobReader
	// Names finds addresses of people, names of keys and slugs of projects. Who is removed is not in it.
	Names names
	Head  projections.Head
}

// streamReader is the part of eventstore.Store that reads one stream.
type streamReader interface {
	Read(
		ctx context.Context, stream string, from eventstore.Revision, direction eventstore.Direction, limit int,
	) ([]eventstore.Recorded, error)
}

type names interface {
	Names(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error)
}

// Page is some events, the newest first.
type Page struct {
	Events []Event `json:"events"`
	// Next is the cursor of the page after, "" if there is none.
	Next string `json:"next,omitempty"`
}

// Event is an event as people read it.
type Event struct {
	ID   uuid.UUID `json:"id"`
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	By   Principal `json:"by"`
	// Project is the slug of its project, "" for one of the organization.
	Project string `json:"project,omitempty"`
	// Text is its sentence, and Pieces the same in parts.
	Text   string  `json:"text"`
	Pieces []Piece `json:"-"`
	// Changes are the values that it changed.
	Changes []Change `json:"changes"`
	// Things are what it is about, of those that have a page.
	Things    []Thing   `json:"things,omitempty"`
	RequestID uuid.UUID `json:"requestId,omitzero"`
	// IsLogged reports that the request log has the request for its time: what people change in the console is not there.
	IsLogged bool `json:"-"`
	// Reason is why an operator did it, if the event has it.
	Reason string `json:"reason,omitempty"`
	// IsErased reports that the event left the log with what it is about.
	IsErased bool `json:"isErased,omitempty"`
}

// HasRequest reports whether a request caused the event.
func (e Event) HasRequest() bool { return e.RequestID != uuid.Nil }

// Piece is a part of a sentence. ID is that of the thing that it names, "" for others.
type Piece struct {
	Text string
	Kind string
	ID   string
	// isName is true for a text that does not get a capital at the beginning of a sentence.
	isName bool
}

// Thing is what an event is about.
type Thing struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// headWait is how long a page waits for what was answered before it. It then shows what there is.
const headWait = 2 * time.Second

// List reads a page. Its fault is invalid-request, for a cursor that no page has.
func (q Reader) List(ctx context.Context, v Viewer, of Query) (Page, error) {
	if err := q.await(ctx); err != nil {
		return Page{}, err
	}
	rows, next, err := q.rows(ctx, v, of)
	if err != nil {
		return Page{}, err
	}
	shown, err := q.load(ctx, rows, listBytes)
	if err != nil {
		return Page{}, err
	}
	events, err := q.render(ctx, v, shown)
	return Page{events, next}, err
}

// Latest reads the newest events of a thing, or with "" of the project or the organization.
func (q Reader) Latest(ctx context.Context, v Viewer, thing string, most int) ([]Event, error) {
	page, err := q.List(ctx, v, Query{Thing: thing, Most: most})
	return page.Events, err
}

// await waits until the projection has what was answered before the call.
func (q Reader) await(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, headWait)
	defer cancel()
	err := q.Head.Await(waiting, Name)
	if late, is := errors.AsType[*fault.Error](err); is && late.Kind == fault.Unavailable || waiting.Err() != nil {
		return ctx.Err()
	}
	return err
}

// listBytes is about how many bytes of payloads a page decodes. Values of the events after that are on their own pages.
const listBytes = 1 << 20

// place is where an event is.
type place struct {
	stream   string
	revision int64
}

// records are the events of a page by their place. One that left the log is not in it.
type records map[place]*record

type record struct {
	eventstore.Recorded
	meta    event.Meta
	payload any
}

// load reads the events of rows, and the events that had the values before. It decodes about so many bytes.
func (q Reader) load(ctx context.Context, rows []entryRow, most int) ([]shownRow, error) {
	var places []place
	for _, r := range rows {
		if r.Stream != "" {
			places = append(places, place{r.Stream, *r.Revision})
		}
		if r.FormerStream != "" {
			places = append(places, place{r.FormerStream, *r.FormerRevision})
		}
	}
	found, err := q.read(ctx, places)
	if err != nil {
		return nil, err
	}
	size := 0
	shown := make([]shownRow, len(rows))
	for i := range rows {
		r := &rows[i]
		shown[i] = shownRow{
			entryRow: r, entry: entries[r.Type], record: found[placeOf(r.Stream, r.Revision)],
			former: found[placeOf(r.FormerStream, r.FormerRevision)],
		}
		if shown[i].record != nil {
			size += len(shown[i].record.Data)
		}
		if shown[i].isLong = size > most; shown[i].isLong {
			continue
		}
		for _, r := range []*record{shown[i].record, shown[i].former} {
			if r != nil && r.payload == nil {
				if r.payload, err = decode(r.Data); err != nil {
					shown[i].isLong = true // an operator set it aside
				}
			}
		}
	}
	return shown, nil
}

func placeOf(stream string, revision *int64) place {
	if revision == nil {
		return place{}
	}
	return place{stream, *revision}
}

// The bounds of reading the events of a page: events of one stream that are near each other are read together.
const (
	nearby   = 8
	maxRun   = 64
	parallel = 8
)

// run is consecutive events of a stream.
type run struct {
	stream      string
	first, last int64
}

// runsOf are the runs that have all places.
func runsOf(places []place) (runs []run) {
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(strings.Compare(a.stream, b.stream), cmp.Compare(a.revision, b.revision))
	})
	for _, p := range places {
		if n := len(runs) - 1; n >= 0 && runs[n].stream == p.stream && p.revision-runs[n].last <= nearby &&
			p.revision-runs[n].first < maxRun {
			runs[n].last = p.revision
			continue
		}
		runs = append(runs, run{p.stream, p.revision, p.revision})
	}
	return runs
}

// read reads the events at places. One that left the log is not in it.
func (q Reader) read(ctx context.Context, places []place) (records, error) {
	found, lock := records{}, sync.Mutex{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, r := range runsOf(places) {
		group.Go(func() error {
			list, err := q.Log.Read(ctx, r.stream, eventstore.Revision(r.first), eventstore.Forwards, int(r.last-r.first)+1)
			if err != nil && !errors.Is(err, eventstore.ErrDeleted) {
				return err
			}
			lock.Lock()
			defer lock.Unlock()
			for _, e := range list {
				one := &record{Recorded: e}
				if json.Unmarshal(e.Meta, &one.meta) != nil {
					one.meta = event.Meta{} // an operator set it aside
				}
				found[place{r.stream, int64(e.Revision)}] = one
			}
			return nil
		})
	}
	return found, group.Wait()
}
