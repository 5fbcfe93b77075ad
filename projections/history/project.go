package history

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
)

// Name names the projection: its schema, its topic, and what callers wait for.
const Name = projection.History

//go:embed schema.sql
var schema string

// Projector keeps schema history.
type Projector struct{ projections.Base }

// New makes the projector.
func New() Projector {
	return Projector{projections.NewBase(projections.Description{
		Name: Name, Version: 2, Schema: schema,
		Categories: []string{
			stream.Registry, stream.Organization, stream.Project, stream.Audiences, stream.Identity, stream.Bulk,
			stream.DataPoint, stream.Ingestion, stream.Deletion, stream.Erasure, stream.Visits,
			eventstore.SystemStream, // the tombstones of visits
		},
		TextTables: []string{"settings"}, // a hash of traits confirms a guess of them
		Counted:    []string{"entries", "about", "settings", "names", "projects"},
		Pace:       projections.Pace{Min: 200 * time.Millisecond, Max: 500 * time.Millisecond},
	})}
}

// entryRow is a row of table entries.
type entryRow struct {
	ID             uuid.UUID `db:"id"`
	Organization   uuid.UUID `db:"organization_id"`
	Project        uuid.UUID `db:"project_id,null"`
	At             time.Time `db:"at"`
	Type           string    `db:"type"`
	Principal      string    `db:"principal"`
	Stream         string    `db:"stream,null"`
	Revision       *int64    `db:"revision"`
	FormerStream   string    `db:"former_stream,null"`
	FormerRevision *int64    `db:"former_revision"`
	IsOfThing      bool      `db:"of_thing"`
}

// aboutRow is a row of table about.
type aboutRow struct {
	Thing string    `db:"thing"`
	At    time.Time `db:"at"`
	ID    uuid.UUID `db:"id"`
}

// settingRow is a row of table settings.
type settingRow struct {
	Key      string `db:"key"`
	Stream   string `db:"stream"`
	Revision int64  `db:"revision"`
	Hash     []byte `db:"hash"`
}

// nameRow is a row of table names.
type nameRow struct {
	Thing string `db:"thing"`
	Name  string `db:"name"`
}

// projectRow is a row of table projects.
type projectRow struct {
	ID           uuid.UUID `db:"id"`
	Organization uuid.UUID `db:"organization_id,once"`
}

var (
	entryRows   = table.New[entryRow](Name, schema, "entries")
	aboutRows   = table.New[aboutRow](Name, schema, "about")
	settingRows = table.New[settingRow](Name, schema, "settings")
	nameRows    = table.New[nameRow](Name, schema, "names")
	projectRows = table.New[projectRow](Name, schema, "projects")
)

// Apply folds a page of events, then writes one statement per table.
func (Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	f := newFold()
	if err := projections.Each(events, f.read); err != nil {
		return err
	}
	if len(f.items) == 0 {
		return nil
	}
	if err := f.load(ctx, tx); err != nil {
		return err
	}
	for i := range f.items {
		f.apply(&f.items[i])
	}
	return f.save(ctx, tx)
}

// item is an event of the page that may have a row.
type item struct {
	eventstore.DecodedEvent
	entry   Entry
	payload any
	setting string
	hash    []byte
}

// fold holds the rows that a page of events writes.
type fold struct {
	items    []item
	projects map[uuid.UUID]*projectRow
	settings map[string]*settingRow
	names    map[string]*nameRow
	entries  map[uuid.UUID]*entryRow
	about    map[string]*aboutRow
	// gone are the streams whose rows are removed, with the revision before which they are.
	gone map[string]int64
	// forgotten are the settings that are removed.
	forgotten map[string]struct{}
}

func newFold() *fold {
	return &fold{
		projects: map[uuid.UUID]*projectRow{}, settings: map[string]*settingRow{}, names: map[string]*nameRow{},
		entries: map[uuid.UUID]*entryRow{}, about: map[string]*aboutRow{}, gone: map[string]int64{},
		forgotten: map[string]struct{}{},
	}
}

// byPeople is how the principals of people begin.
const byPeople = "person:"

// read takes the events of the page that may have a row. It decodes no payload of another: there are many sends.
func (f *fold) read(decoded eventstore.DecodedEvent) error {
	if decoded.Event == nil || decoded.IsPassedOver() {
		return nil
	}
	if ended, is := decoded.Event.(*eventstore.Tombstoned); is {
		if stream.Category(ended.Stream) == stream.Visits {
			f.items = append(f.items, item{DecodedEvent: decoded})
		}
		return nil
	}
	if facts, is := decoded.Event.(*deletion.FactsKept); is {
		payload := map[string]any{"projectId": facts.ProjectID.String()}
		f.items = append(f.items, item{DecodedEvent: decoded, payload: payload})
		return nil
	}
	entry, has := EntryOf(decoded.Type)
	if !has || entry.IsOfPeople && !strings.HasPrefix(decoded.Details.Principal, byPeople) {
		return nil
	}
	if row, is := decoded.Event.(*identity.BulkRowApplied); is && row.Record == nil {
		return nil // of a record that was removed since
	}
	it := item{DecodedEvent: decoded, entry: entry}
	data, err := json.Marshal(decoded.Event)
	if err != nil {
		return err
	}
	if it.payload, err = decode(data); err != nil {
		return err
	}
	it.setting = settingOf(entry, decoded.Stream, it.payload)
	if it.setting != "" {
		it.hash = hashOf(entry, it.payload)
	}
	f.items = append(f.items, it)
	return nil
}

// settingOf is the key of the setting that an event sets, "" for none.
func settingOf(e Entry, name string, payload any) string {
	parts := strings.Fields(e.Setting)
	for i := range parts {
		if i > 0 {
			parts[i] = idAt(name, payload, parts[i])
		}
	}
	return strings.Join(parts, " ")
}

// hashOf is a hash of the values that an event sets. Of a blob it takes the hash.
func hashOf(e Entry, payload any) []byte {
	var values []any
	for text := range strings.FieldsSeq(e.Values) {
		path, _ := pathForm(text)
		if ref := blobAt(payload, path); ref != nil {
			values = append(values, ref["sha256"])
		} else {
			values = append(values, valueAt(payload, path))
		}
	}
	data, err := json.Marshal(values)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	sum := sha256.Sum256(data)
	return sum[:]
}

// load reads the rows that the items need.
func (f *fold) load(ctx context.Context, tx pgx.Tx) error {
	projects, settings := map[uuid.UUID]struct{}{}, map[string]struct{}{}
	for _, it := range f.items {
		if p, err := uuid.Parse(idAt(it.Stream, it.payload, "projectId")); err == nil {
			projects[p] = struct{}{}
		}
		if it.setting != "" {
			settings[it.setting] = struct{}{}
		}
	}
	b := new(pgx.Batch)
	table.Load(b, projectRows, projects, func(r *projectRow) { f.projects[r.ID] = r })
	table.Load(b, settingRows, settings, func(r *settingRow) { f.settings[r.Key] = r })
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("load the rows of the page: %w", err)
	}
	return nil
}

func (f *fold) apply(it *item) {
	switch e := it.Event.(type) {
	case *registry.ProjectCreated:
		f.projects[e.ProjectID] = &projectRow{e.ProjectID, e.OrganizationID}
	case *datapoint.Deleted:
		f.deleted(stream.Owner(it.Stream), e.ProjectID, e.DeletedAt, it.Details.Principal, e.Single)
		return
	case *deletion.FactsKept:
		f.deleted(e.DataPoint, e.ProjectID, e.DeletedAt, e.Principal, e.Single)
		return
	case *eventstore.Tombstoned:
		f.drop(e.Stream, forAll)
		return
	case *identity.Removed:
		f.drop(it.Stream, int64(it.Revision))
		traits := settingOf(entries[identity.TraitsReplaced{}.EventType()], it.Stream, nil)
		delete(f.settings, traits)
		f.forgotten[traits] = struct{}{}
	}
	row := &entryRow{
		ID: it.ID, At: pgarray.Instant(it.Details.At), Type: it.Type, Principal: it.Details.Principal, Stream: it.Stream,
		Revision: new(int64(it.Revision)), IsOfThing: it.entry.IsOfThing || isOfText(it),
	}
	if row.ID == uuid.Nil {
		row.ID = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s %d", it.Stream, it.Revision))
	}
	row.Project, _ = uuid.Parse(idAt(it.Stream, it.payload, "projectId"))
	row.Organization = f.organizationOf(it, row.Project)
	if it.setting != "" {
		former := f.settings[it.setting]
		if former != nil && bytes.Equal(former.Hash, it.hash) {
			return // written again unchanged: no change
		}
		if former != nil {
			row.FormerStream, row.FormerRevision = former.Stream, new(former.Revision)
		}
		f.settings[it.setting] = &settingRow{it.setting, it.Stream, int64(it.Revision), it.hash}
		delete(f.forgotten, it.setting)
	}
	f.add(row, things(it))
	if name := plain(valueAt(it.payload, it.entry.Named)); it.entry.Named != "" && name != "" {
		thing := things(it)[0]
		f.names[thing] = &nameRow{thing, name}
	}
}

// isOfText reports whether an event is only in the history of its data point: a new text that a person sent, and one
// of a send of several, stay in Data points.
func isOfText(it *item) bool {
	e, is := it.Event.(*datapoint.RevisionAccepted)
	return is && (e.Effect.Revision == 1 || e.Items > 1)
}

func (f *fold) organizationOf(it *item, project uuid.UUID) uuid.UUID {
	if id, err := uuid.Parse(idAt(it.Stream, it.payload, "organizationId")); err == nil {
		return id
	}
	if p := f.projects[project]; p != nil {
		return p.Organization
	}
	return uuid.Nil
}

// things are what an event is about.
func things(it *item) (all []string) {
	for about := range strings.FieldsSeq(it.entry.About) {
		kind, path, _ := strings.Cut(about, "=")
		if id := idAt(it.Stream, it.payload, path); id != "" {
			all = append(all, kind+":"+id)
		}
	}
	return all
}

func (f *fold) add(row *entryRow, things []string) {
	f.entries[row.ID] = row
	for _, thing := range things {
		f.about[thing+" "+row.ID.String()] = &aboutRow{thing, row.At, row.ID}
	}
}

// deleted writes the row of a deletion from what its facts retain, and removes the others of the data point: whether or
// not this replay read its stream, the rows are the same. This is the erasure law.
func (f *fold) deleted(dataPoint, project uuid.UUID, at time.Time, principal string, single bool) {
	f.drop(stream.Name(stream.DataPoint, dataPoint), forAll)
	row := &entryRow{
		ID: DeletionID(dataPoint), Project: project, At: pgarray.Instant(at), Type: datapoint.Deleted{}.EventType(),
		Principal: principal, IsOfThing: !single,
	}
	if p := f.projects[project]; p != nil {
		row.Organization = p.Organization
	}
	f.add(row, []string{OfDataPoint + ":" + dataPoint.String()})
}

// DeletionID is the id of the row of the deletion of a data point.
func DeletionID(dataPoint uuid.UUID) uuid.UUID {
	return uuid.NewSHA1(dataPoint, []byte("history: deleted"))
}

// forAll is after each revision.
const forAll = int64(1) << 62

// drop removes the rows of a stream before a revision.
func (f *fold) drop(name string, before int64) {
	f.gone[name] = before
	for id, row := range f.entries {
		if row.Stream == name && *row.Revision < before {
			delete(f.entries, id)
			maps.DeleteFunc(f.about, func(_ string, about *aboutRow) bool { return about.ID == id })
		}
	}
}

// removeGone removes the rows of what is gone before the page.
const removeGone = `with gone as (delete from entries e using unnest($1::text[], $2::bigint[]) g (stream, before)
	where e.stream = g.stream and e.revision < g.before returning e.id)
	delete from about a using gone where a.id = gone.id`

// save writes the rows in one round trip. An entry that is there stays: a page that comes again has other formers.
func (f *fold) save(ctx context.Context, tx pgx.Tx) error {
	b := new(pgx.Batch)
	if len(f.gone) > 0 {
		streams := slices.Collect(maps.Keys(f.gone))
		b.Queue(removeGone, streams, pgarray.Column(streams, func(name string) int64 { return f.gone[name] }))
	}
	if len(f.forgotten) > 0 {
		b.Queue(`delete from settings where key = any($1) -- history`, slices.Collect(maps.Keys(f.forgotten)))
	}
	entryRows.Insert(b, slices.Collect(maps.Values(f.entries)))
	aboutRows.Insert(b, slices.Collect(maps.Values(f.about)))
	settingRows.Save(b, slices.Collect(maps.Values(f.settings)))
	nameRows.Save(b, slices.Collect(maps.Values(f.names)))
	projectRows.Insert(b, slices.Collect(maps.Values(f.projects)))
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}
