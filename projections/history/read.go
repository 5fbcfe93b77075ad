package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/cursor"
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

// Whole is an event with its place in the log, its metadata and its payload.
type Whole struct {
	Event

	Type string `json:"type"`
	// These are of the log, and zero for an event that left it.
	Stream   string `json:"stream,omitempty"`
	Revision int64  `json:"revision"`
	Position uint64 `json:"position,omitempty"`
	// Metadata and Payload are JSON as it is stored, without the salt and without what is hidden.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Payload  json.RawMessage `json:"payload,omitempty"`
}

// wholeBytes is the most bytes of payloads and blobs that the page of an event decodes.
const wholeBytes = 8 << 20

// One reads an event. Its fault is not-found for one that the viewer may not see, as for one that is not there.
func (q Reader) One(ctx context.Context, v Viewer, id uuid.UUID) (Whole, error) {
	if err := q.await(ctx); err != nil {
		return Whole{}, err
	}
	row, ok, err := q.row(ctx, v, id)
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no such event")
	}
	if err != nil {
		return Whole{}, err
	}
	shown, err := q.load(ctx, []entryRow{row}, wholeBytes)
	if err != nil {
		return Whole{}, err
	}
	s := &shown[0]
	if s.texts, err = q.readTexts(ctx, s.entry, s.record); err == nil {
		s.formerTexts, err = q.readTexts(ctx, s.entry, s.former)
	}
	if err != nil {
		return Whole{}, err
	}
	events, err := q.render(ctx, v, shown)
	if err != nil {
		return Whole{}, err
	}
	w := Whole{Event: events[0], Type: row.Type}
	if r := s.record; r != nil {
		w.Stream, w.Revision, w.Position = r.Stream, int64(r.Revision), uint64(r.Position)
		w.Metadata = hide(r.Meta, []string{"salt"})
		hidden := strings.Fields(s.entry.Hidden)
		if v.HidesTexts && s.entry.Texts {
			hidden = append(hidden, "identity", "traits", "patch", "inline")
		}
		if v.HidesTexts {
			hidden = append(hidden, "values") // of the rule of an audience, and of the filters of a webhook
		}
		w.Payload = hide(r.Data, hidden)
	}
	return w, nil
}

// readTexts reads the values of an event that blobs hold. One that is lost is left out.
func (q Reader) readTexts(ctx context.Context, e Entry, r *record) (map[string]any, error) {
	if r == nil {
		return nil, nil //nolint:nilnil // nothing is read of an event that left the log
	}
	texts := map[string]any{}
	for text := range strings.FieldsSeq(e.Values) {
		path, form := pathForm(text)
		at := blobAt(r.payload, path)
		ref, ok := as[blob.Ref](at)
		if at == nil || !ok || ref.Size > wholeBytes {
			continue
		}
		data, err := q.Blobs.ReadBlob(ctx, ref)
		if _, lost := errors.AsType[*eventstore.BlobError](err); lost {
			continue
		}
		if err != nil {
			return nil, err
		}
		if form == formMembers {
			texts[path] = membersIn(data)
			continue
		}
		if value, err := decode(data); err == nil {
			texts[path] = value
		}
	}
	return texts, nil
}

// membersIn are the members of an audience as a blob holds them: 16 bytes each.
func membersIn(data []byte) (ids []any) {
	for id := range slices.Chunk(data, len(uuid.UUID{})) {
		if len(id) == len(uuid.UUID{}) {
			ids = append(ids, uuid.UUID(id).String())
		}
	}
	return ids
}

const hiddenValue = "(hidden)"

// hide returns JSON with the values of some fields hidden, wherever these are, indented for people.
func hide(data []byte, fields []string) json.RawMessage {
	value, err := decode(data)
	if err != nil {
		return nil
	}
	hideIn(value, fields)
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if encoder.Encode(value) != nil {
		return nil
	}
	return bytes.TrimSpace(out.Bytes())
}

func hideIn(value any, fields []string) {
	switch value := value.(type) {
	case map[string]any:
		for name, of := range value {
			if slices.Contains(fields, name) {
				value[name] = hiddenValue
			} else {
				hideIn(of, fields)
			}
		}
	case []any:
		for _, of := range value {
			hideIn(of, fields)
		}
	}
}

// Viewer is what the person who reads may see.
type Viewer struct {
	// Organization is the one whose history it is. Project is zero for that of the organization, which only those who
	// may Manage read.
	Organization uuid.UUID
	Project      uuid.UUID
	// May is the most that the person may do in it.
	May Needs
	// HidesTexts hides texts of customers: traits, names of identities and ids of texts.
	HidesTexts bool
}

// Query is which events are asked for. A zero field filters nothing.
type Query struct {
	// Thing is "kind:id" of a thing (OfKey and so on).
	Thing string
	// By is the principal of the events, as "person:<id>", or how that of an operator begins.
	By string
	// Kind is one of Kinds.
	Kind     string
	From, To time.Time // To is exclusive
	// After is the cursor of the page before.
	After string
	// Most is the most events of the page, 0 for PageSize.
	Most int
}

// PageSize is the most events of a page, if the query names no other number.
const PageSize = 50

// Kinds are the kinds that somebody may see, as names without a version.
func (v Viewer) Kinds() (kinds []string) {
	for _, name := range v.types("") {
		kinds = append(kinds, KindOf(name))
	}
	return kinds
}

// types are the stored names of the kinds that somebody may see: all, or one.
func (v Viewer) types(kind string) []string {
	types := []string{}
	for _, name := range withText {
		if entries[name].Needs <= v.May && (kind == "" || KindOf(name) == kind) {
			types = append(types, name)
		}
	}
	return types
}

const columns = `e.id, e.organization_id, coalesce(e.project_id, '00000000-0000-0000-0000-000000000000'), e.at, e.type,
	e.principal, coalesce(e.stream, ''), e.revision, coalesce(e.former_stream, ''), e.former_revision, e.of_thing`

func scanEntry(row pgx.CollectableRow) (r entryRow, err error) {
	err = row.Scan(&r.ID, &r.Organization, &r.Project, &r.At, &r.Type, &r.Principal, &r.Stream, &r.Revision,
		&r.FormerStream, &r.FormerRevision, &r.IsOfThing)
	r.At = r.At.UTC()
	return r, err
}

// statement is a query with its arguments.
type statement struct {
	where []string
	args  []any
}

func (s *statement) add(condition string, arg any) {
	s.args = append(s.args, arg)
	s.where = append(s.where, fmt.Sprintf(condition, len(s.args)))
}

// scope limits a statement to what somebody may see.
func (v Viewer) scope(s *statement) {
	s.add("e.organization_id = $%d", v.Organization)
	if v.Project != uuid.Nil {
		s.add("e.project_id = $%d", v.Project)
	}
}

// rows reads the rows of a page, the newest first, and the cursor of the next one.
func (q Reader) rows(ctx context.Context, v Viewer, of Query) (rows []entryRow, next string, err error) {
	s, from, place := &statement{}, "history.entries e", "e"
	v.scope(s)
	if of.Thing == "" {
		s.where = append(s.where, "not e.of_thing")
	} else {
		from, place = "history.about a join history.entries e using (id)", "a"
		s.add("a.thing = $%d", of.Thing)
	}
	if strings.HasPrefix(of.By, OfOperator) {
		s.add("starts_with(e.principal, $%d)", of.By)
	} else if of.By != "" {
		s.add("e.principal = $%d", of.By)
	}
	if types := v.types(of.Kind); len(types) == 1 {
		s.add("e.type = $%d", types[0]) // an index has them in order
	} else if v.May < Manage || of.Kind != "" {
		s.add("e.type = any($%d)", types)
	}
	if !of.From.IsZero() {
		s.add(place+".at >= $%d", of.From)
	}
	if !of.To.IsZero() {
		s.add(place+".at < $%d", of.To)
	}
	if of.After != "" {
		at, err := cursor.Parse(of.After)
		if err != nil {
			return nil, "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "there is no such page; begin at the first one")
		}
		s.args = append(s.args, at.At, at.ID)
		n := len(s.args)
		s.where = append(s.where, fmt.Sprintf("(%s.at, %s.id) < ($%d, $%d)", place, place, n-1, n))
	}
	most := of.Most
	if most <= 0 {
		most = PageSize
	}
	sql := fmt.Sprintf(`select %s from %s where %s order by %s.at desc, %s.id desc limit %d`,
		columns, from, strings.Join(s.where, " and "), place, place, most+1)
	found, err := q.DB.Query(ctx, sql, s.args...)
	if err == nil {
		rows, err = pgx.CollectRows(found, scanEntry)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read history: %w", err)
	}
	if len(rows) > most {
		rows = rows[:most]
		next = cursor.Cursor{At: rows[most-1].At, ID: rows[most-1].ID}.String()
	}
	return rows, next, nil
}

// row reads one row that somebody may see. ok is false if there is none.
func (q Reader) row(ctx context.Context, v Viewer, id uuid.UUID) (row entryRow, ok bool, err error) {
	s := &statement{}
	v.scope(s)
	s.add("e.type = any($%d)", v.types(""))
	s.add("e.id = $%d", id)
	sql := "select " + columns + " from history.entries e where " + strings.Join(s.where, " and ")
	rows, err := q.DB.Query(ctx, sql, s.args...)
	if err == nil {
		var found []entryRow
		if found, err = pgx.CollectRows(rows, scanEntry); len(found) == 1 {
			return found[0], true, nil
		}
	}
	if err != nil {
		return row, false, fmt.Errorf("read an event of history: %w", err)
	}
	return row, false, nil
}
