package datapoints

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections"
)

// deleted applies the deletion of a data point: it leaves recall at once, and none of its items
// waits any longer.
func (f *fold) deleted(at eventstore.Position, id uuid.UUID, e *datapoint.Deleted) {
	data, row := followUpData{DeletedAt: pgarray.Instant(e.DeletedAt)}, f.dataPoints[id]
	if row != nil {
		data.Newest = row.Revision
	}
	isNew, many := row != nil, f.hasMore(id, func(i *item) bool { return !i.keepsRevision() })
	for _, i := range f.itemsOf[id] {
		isNew = f.endItem(at, i, data) || isNew
	}
	if f.removeDataPoint(id); many && isNew {
		f.followUp(followUpKey{deleteItems, id}, at, e.ProjectID, data)
		delete(f.removed, id)
		f.unlisted.add(id)
	}
	f.addErasure(at, id, e.ProjectID, e.DeletionID)
	if e.Single {
		f.ensureDeletion(at, e.DeletionID, e.ProjectID, e.DeletedAt)
	}
}

// factsKept applies the retained facts of an erased data point. It sets the items from the facts
// alone, whether or not this replay read the events of the data point, so that both replays yield
// the same rows: this is the erasure law.
func (f *fold) factsKept(at eventstore.Position, id uuid.UUID, e *deletion.FactsKept) {
	deletedAt, newest := pgarray.Instant(e.DeletedAt), e.Newest
	for _, fact := range e.Facts {
		s := f.send(fact.IngestionID, e.ProjectID)
		if !s.known {
			s.known, s.Request, s.AcceptedAt, s.Items = true, fact.RequestID, pgarray.Instant(fact.AcceptedAt), fact.Items
			s.Month, s.FannedOut, s.dirty = fact.Month, true, true
			if createsRevision(fact.Outcome) {
				s.charge(fact.Bytes, fact.CreditTenths)
			}
		}
		key := itemKey{Send: fact.IngestionID, Ordinal: fact.Ordinal}
		i := f.items[key]
		if i == nil {
			i = &item{itemKey: key, Project: e.ProjectID, DataPoint: e.DataPoint, Phase: erased, Batch: s.Batch}
			f.insertItem(at, i)
		}
		switch {
		case createsRevision(fact.Outcome):
			f.changeItem(at, i, func(i *item) {
				i.Outcome, i.Revision, i.Historic = fact.Outcome, fact.Revision, fact.Historic
				i.Outdated = fact.Revision != newest
				i.markDeleted(deletedAt)
			})
		case i.Phase != done || i.Outcome != fact.Outcome || i.Revision != fact.Revision || i.Historic != fact.Historic:
			f.changeItem(at, i, func(i *item) {
				i.Outcome, i.Revision, i.Historic, i.Phase = fact.Outcome, fact.Revision, fact.Historic, done
				i.Bytes = 0
			})
		}
		if fact.CreatedRevision() {
			s.setSearchableAt(fact.SearchableAt)
		}
		s.derivePhase(at)
	}
	f.removeErased(at, e)
	f.ensureDeletion(at, id, e.ProjectID, e.DeletedAt)
	row := f.addErasure(at, e.DataPoint, e.ProjectID, id)
	row.FactsKept, row.Blobs, row.dirty = row.FactsKept || e.Complete, append([]string{}, e.Blobs...), true
}

// addErasure adds a data point to the work list of the finisher.
func (f *fold) addErasure(at eventstore.Position, dataPoint, project, deletion uuid.UUID) *erasure {
	row := f.erasures[dataPoint]
	if row == nil {
		row = &erasure{
			DataPoint: dataPoint, Project: project, Deletion: deletion, Blobs: []string{}, Position: at, dirty: true,
		}
		f.erasures[dataPoint] = row
	}
	return row
}

// ensureDeletion adds the row of a deletion of one data point, which has no separate commit.
func (f *fold) ensureDeletion(at eventstore.Position, id, project uuid.UUID, accepted time.Time) {
	if f.deletions[id] == nil {
		f.deletions[id] = &deletionRow{
			ID: id, Project: project, AcceptedAt: pgarray.Instant(accepted), FannedOut: true, Position: at, dirty: true,
		}
	}
}

// deletionAccepted applies the commit of a deletion of several data points, or of a send.
func (f *fold) deletionAccepted(at eventstore.Position, id uuid.UUID, e *deletion.Accepted) {
	if f.deletions[id] == nil {
		f.deletions[id] = &deletionRow{
			ID: id, Project: e.ProjectID, Send: e.IngestionID, AcceptedAt: pgarray.Instant(e.AcceptedAt),
			Position: at, dirty: true,
		}
	}
}

// deletionFannedOut applies the end of a deletion's fan-out. A deleted send is then done. Its items
// whose data points live on are no longer listed.
func (f *fold) deletionFannedOut(at eventstore.Position, id uuid.UUID) error {
	row := f.deletions[id]
	if row == nil {
		return fmt.Errorf("deletion was fanned out without a commit")
	}
	if row.FannedOut {
		return nil // applied before
	}
	row.FannedOut, row.dirty = true, true
	if row.Send == uuid.Nil {
		return nil
	}
	if s := f.send(row.Send, row.Project); s.DeletedAt == nil {
		s.DeletedAt, s.dirty = &row.AcceptedAt, true
		s.derivePhase(at)
	}
	return nil
}

// deletionCleaned applies the last event of a deletion: nothing is left for the finisher.
func (f *fold) deletionCleaned(id uuid.UUID) error {
	row := f.deletions[id]
	if row == nil {
		return fmt.Errorf("deletion was cleaned without a commit")
	}
	row.Cleaned, row.dirty = true, true
	f.cleaned.add(id)
	return nil
}

// The follow-ups of a data point with more items than a page changes. What a client reads of the data
// point itself changes with the page, and so does every send that a later page touches: loadFollowed does
// what is left of its items first. So the rows are in the end as if the page had done all.
const (
	// deleteItems ends the items of a deleted data point, and deletes its revisions.
	deleteItems = "delete"
	// deleteText deletes the revisions of an erased data point, whose items the retained facts end.
	deleteText = "text"
	// overtakenItems marks the failures before the captured revision of a data point as overtaken.
	overtakenItems = "overtaken"
)

// leastItems is the least of a data point's items that a page of many deletions changes.
const leastItems = 8

type followUpKey struct {
	kind      string
	dataPoint uuid.UUID
}

// followUpData is what a follow-up knows of its event.
type followUpData struct {
	// DeletedAt and Newest are the time of a deletion, and the newest revision at it.
	DeletedAt time.Time `json:"deletedAt,omitzero"`
	Newest    int       `json:"newest"`
	// Captured is the revision before which failures are overtaken.
	Captured int `json:"captured,omitempty"`
}

// followUp is a follow-up that was queued before.
type followUp struct {
	followUpKey
	followUpData
	position eventstore.Position
}

// hasMore reports whether a data point has, or may have, more items of a sort than load read.
func (f *fold) hasMore(dataPoint uuid.UUID, is func(*item) bool) bool {
	n := 0
	for _, i := range f.itemsOf[dataPoint] {
		if is(i) {
			n++
		}
	}
	return n > f.most
}

func (f *fold) followUp(key followUpKey, at eventstore.Position, project uuid.UUID, data followUpData) {
	encoded, err := json.Marshal(data)
	if err != nil {
		panic(err) // numbers and a time always encode
	}
	f.followUps[key] = projections.FollowUp{
		Kind: key.kind, Key: key.dataPoint, Project: project, Position: at, Data: string(encoded),
	}
}

// endItem applies the deletion of its data point to an item. It reports whether the item was there before.
func (f *fold) endItem(at eventstore.Position, i *item, data followUpData) bool {
	if i.isDeleted() || i.keepsRevision() {
		return false
	}
	f.changeItem(at, i, func(i *item) {
		i.Outdated = i.Revision != data.Newest
		i.markDeleted(data.DeletedAt)
	}).derivePhase(at)
	return true
}

// overtakeItem marks the failure of an item as overtaken, since a newer revision is captured.
func (f *fold) overtakeItem(at eventstore.Position, i *item, data followUpData) {
	if i.hasFailed() && !i.Overtaken && i.Revision < data.Captured {
		position := i.Position // keep the position of the failure
		f.changeItem(position, i, func(i *item) { i.Overtaken = true }).derivePhase(at)
	}
}

// removeErased removes what is left of a data point whose facts are retained: nothing, unless this replay
// read its events and not its deletion. If a follow-up deletes its revisions, that goes on.
func (f *fold) removeErased(at eventstore.Position, e *deletion.FactsKept) {
	row := f.dataPoints[e.DataPoint]
	if row == nil {
		return
	}
	many := row.Revision > f.most
	if f.removeDataPoint(e.DataPoint); many {
		f.followUp(followUpKey{deleteText, e.DataPoint}, at, e.ProjectID, followUpData{})
		delete(f.removed, e.DataPoint)
		f.unlisted.add(e.DataPoint)
	}
}

// loadFollowed does what follow-ups left of the items that the page loaded, and of those of its open sends:
// the count of a send's deleted items decides whether a watermark ends it.
func (f *fold) loadFollowed(ctx context.Context, tx pgx.Tx, k *keys) error {
	var many []uuid.UUID // data points that get a follow-up in this page
	for _, of := range []ids{k.itemsOf, k.failedOf} {
		for id := range of {
			if len(f.itemsOf[id]) > f.most {
				many = append(many, id)
			}
		}
	}
	if !f.followed && len(many) == 0 {
		return nil
	}
	var open []uuid.UUID
	for id, s := range f.sends {
		if s.Phase != indexed && s.Phase != nothingChanged || k.unsure.has(id) {
			open = append(open, id)
		}
	}
	b := &pgx.Batch{}
	b.Queue(itemsFollowed, open, many).Query(items.Read(f.itemLoaded))
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("load the items of open sends: %w", err)
	}
	if !f.followed {
		return nil
	}
	works, err := selectFollowUps(ctx, tx, pgarray.Keys(f.itemsOf))
	if err != nil {
		return err
	}
	for _, w := range works {
		for _, i := range f.itemsOf[w.dataPoint] {
			if f.sends[i.Send] == nil {
				continue
			}
			f.followItem(w, i)
		}
	}
	return nil
}

// followItem does a follow-up of one item.
func (f *fold) followItem(w followUp, i *item) {
	switch w.kind {
	case deleteItems:
		f.ending.add(w.dataPoint)
		f.endItem(w.position, i, w.followUpData)
	case overtakenItems:
		f.overtakeItem(w.position, i, w.followUpData)
	}
}

// selectFollowUps reads the follow-ups of data points in their order.
func selectFollowUps(ctx context.Context, tx pgx.Tx, dataPoints []uuid.UUID) ([]followUp, error) {
	rows, err := tx.Query(ctx, `select kind, key, position, data from follow_ups
		where key = any($1::uuid[]) and kind in ('`+deleteItems+`', '`+overtakenItems+`')`, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("read the follow-ups of data points: %w", err)
	}
	works, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w followUp, err error) {
		var data string
		if err = row.Scan(&w.kind, &w.dataPoint, (*uint64)(&w.position), &data); err != nil {
			return w, err
		}
		return w, json.Unmarshal([]byte(data), &w.followUpData)
	})
	if err != nil {
		return nil, fmt.Errorf("read the follow-ups of data points: %w", err)
	}
	slices.SortFunc(works, func(a, b followUp) int { return cmp.Compare(a.position, b.position) })
	return works, nil
}

var (
	// followStopped and followOpen read the items that a slice ends first, since sends wait for them.
	followStopped = items.Select(`items where data_point = $1 and ` + stopped + ` order by revision limit $2`)
	followOpen    = items.Select(`items where data_point = $1 and phase in ('queued', 'processing')
		order by batch, revision limit $2`)
	followOvertaken = items.Select(`items where data_point = $1 and ` + stopped + ` and revision < $3
		order by revision limit $2`)
	followAll = items.Select(`items where data_point = $1 and ` + withRevision + ` and revision > $3
		order by revision limit $2`)
)

// deleteSlice deletes revisions after a number, up to $3, at most $4, and returns the last.
const deleteSlice = `with slice as (
			select number from revisions where data_point = $1 and number > $2 and number <= $3 order by number limit $4
		), gone as (
			delete from revisions where data_point = $1 and number = any(array(select number from slice))
		)
		select count(*), coalesce(max(number), $2) from slice`

// Slice implements projections.Following.
func (p Projector) Slice(
	ctx context.Context, tx pgx.Tx, work projections.FollowUp,
) (cursor string, done bool, err error) {
	w := followUp{followUpKey: followUpKey{work.Kind, work.Key}, position: work.Position}
	if err := json.Unmarshal([]byte(work.Data), &w.followUpData); err != nil {
		return "", false, fmt.Errorf("decode a follow-up: %w", err)
	}
	switch work.Kind {
	case overtakenItems:
		n, _, err := p.sliceItems(ctx, tx, w, followOvertaken, w.Captured)
		return "", n < p.rows, err
	case deleteText:
		return p.sliceRevisions(ctx, tx, w, work.Cursor, maxRevision)
	case deleteItems:
	default:
		return "", false, fmt.Errorf("no rule for follow-up %s", work.Kind)
	}
	if work.Cursor == "" {
		for _, sql := range []string{followOpen, followStopped} {
			if n, _, err := p.sliceItems(ctx, tx, w, sql); n > 0 || err != nil {
				return "", false, err
			}
		}
	}
	after, err := numberOf(work.Cursor)
	if err != nil {
		return "", false, err
	}
	n, last, err := p.sliceItems(ctx, tx, w, followAll, after)
	if err != nil {
		return "", false, err
	}
	if n < p.rows {
		return p.sliceRevisions(ctx, tx, w, work.Cursor, maxRevision)
	}
	cursor, done, err = p.sliceRevisions(ctx, tx, w, work.Cursor, last)
	if done {
		cursor = strconv.Itoa(last)
	}
	return cursor, false, err
}

// maxRevision is above every revision.
const maxRevision = 1<<31 - 1

// numberOf decodes the cursor of a slice: the last revision of the slice before.
func numberOf(cursor string) (int, error) {
	if cursor == "" {
		return 0, nil
	}
	number, err := strconv.Atoi(cursor)
	if err != nil {
		return 0, fmt.Errorf("decode the cursor of a follow-up: %w", err)
	}
	return number, nil
}

// sliceItems does a follow-up of the items that a query selects, and returns how many it selected and
// the last revision.
func (p Projector) sliceItems(
	ctx context.Context, tx pgx.Tx, w followUp, sql string, more ...int,
) (n, last int, err error) {
	args := []any{w.dataPoint, p.rows}
	for _, arg := range more {
		args = append(args, arg)
	}
	f, b := newFold(), &pgx.Batch{}
	b.Queue(sql, args...).Query(items.Read(f.itemLoaded))
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return 0, 0, fmt.Errorf("load the items of a slice: %w", err)
	}
	sends := ids{}
	for key, i := range f.items {
		sends.add(key.Send)
		last = max(last, i.Revision)
	}
	if len(sends) == 0 {
		return 0, 0, nil
	}
	b = &pgx.Batch{}
	f.loadSends(b, sends)
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return 0, 0, fmt.Errorf("load the sends of a slice: %w", err)
	}
	for _, i := range f.itemsOf[w.dataPoint] {
		f.followItem(w, i)
	}
	return len(f.items), last, f.save(ctx, tx)
}

// sliceRevisions deletes revisions after a cursor, up to a number.
func (p Projector) sliceRevisions(
	ctx context.Context, tx pgx.Tx, w followUp, cursor string, upTo int,
) (next string, done bool, err error) {
	after, err := numberOf(cursor)
	if err != nil {
		return "", false, err
	}
	var n, last int
	err = tx.QueryRow(ctx, deleteSlice, w.dataPoint, after, upTo, p.rows).Scan(&n, &last)
	if err != nil {
		return "", false, fmt.Errorf("delete the revisions of a slice: %w", err)
	}
	return strconv.Itoa(last), n < p.rows, nil
}
