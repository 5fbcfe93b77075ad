package identities

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

// IdentityStatus reports whether a bulk write created or updated an identity.
type IdentityStatus struct {
	Identity string
	Status   string
}

// BulkIdentities creates records or replaces all of their traits, all or none. If an identity is in
// several rows, the last one counts. It returns once recall shows the change, with one status for
// each distinct identity in the order of first appearance.
//
// rows are within their limits, 1 to limit.BulkRows. The fault is conflict if another write of one
// of the identities was found before the commit: then nothing is applied. It is
// service-unavailable, with "committed" in its data, if the write is stored and not visible yet.
func (s *Service) BulkIdentities(ctx context.Context, call engine.Call, rows []identity.Row) ([]IdentityStatus, error) {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	b := newBulk(call, distinct(rows))
	before, err := s.readRecords(decideCtx, call, b)
	if err != nil {
		return nil, err
	}
	command := uuid.New()
	b.accepted.FanOut = uuid.NewSHA1(command, []byte("fan-out"))
	if b.accepted.Rows, err = writeRows(decideCtx, s.journal, call, b, command); err != nil {
		return nil, err
	}
	// The rows were written between the two reads, which may take long. The fan-out orders what
	// changes after the second read.
	now, err := s.readRecords(decideCtx, call, b)
	if err != nil {
		return nil, err
	}
	for i, id := range b.ids {
		if before.current[i].Revision != now.current[i].Revision {
			return nil, conflictError(b.rows[i].Identity)
		}
		b.accepted.Targets[i] = identity.BulkTarget{IdentityID: id, Decided: int64(now.current[i].Revision)}
	}
	b.decidedOn = &now
	name := stream.Name(stream.Bulk, b.id)
	done, err := s.journal.AppendReferring(decideCtx, &b.stage, name, eventstore.NoStream, call.Meta(command), b.accepted)
	if err != nil {
		return nil, err
	}
	b.commit = done.Position
	// The write is accepted now: continue even if the caller is gone. All of it is visible once the
	// directory has applied the commit.
	fanCtx, cancelFan := context.WithTimeout(context.WithoutCancel(ctx), engine.FanOutTimeout)
	defer cancelFan()
	statuses, err := fanOutBulk(fanCtx, s.journal, s.directory, s.waiter, b)
	if err != nil {
		s.journal.Logger.ErrorContext(ctx, "fan-out of bulk write failed, the finisher will retry", "bulk", b.id, "err", err)
		return nil, fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the bulk write is accepted and takes effect; it is not visible yet").With("committed", true)
	}
	answer := make([]IdentityStatus, len(b.rows))
	for i, row := range b.rows {
		answer[i] = IdentityStatus{Identity: row.Identity, Status: statuses[i]}
	}
	return answer, nil
}

// bulk is a bulk write between its preparation and the end of its fan-out.
type bulk struct {
	id       uuid.UUID
	accepted identity.BulkAccepted
	stage    engine.Written
	commit   eventstore.Position
	rows     []identity.Row
	ids      []uuid.UUID
	// deadline is until when its unreferenced blobs are retained.
	deadline time.Time
	// decidedOn is the state that it was decided on. It is nil if another run began the fan-out: its
	// rows may be stored already.
	decidedOn *bulkRead
}

func newBulk(call engine.Call, rows []identity.Row) *bulk {
	b := &bulk{
		id:       uuid.Must(uuid.NewV7()),
		rows:     rows,
		ids:      make([]uuid.UUID, len(rows)),
		deadline: call.ReceivedAt.Add(blob.Keep),
	}
	for i, row := range rows {
		b.ids[i] = stream.IdentityID(call.Principal.Project.Namespace, row.Identity)
	}
	b.accepted = identity.BulkAccepted{
		ProjectID: call.Principal.Project.ID, RequestID: call.RequestID, Principal: call.Principal.Name(),
		Origin: call.IdentityOrigin(), Targets: make([]identity.BulkTarget, len(rows)), AcceptedAt: call.ReceivedAt,
	}
	return b
}

// distinct returns the last row of each identity, in the order in which they first appear.
func distinct(rows []identity.Row) []identity.Row {
	at := make(map[string]int, len(rows))
	var last []identity.Row
	for _, row := range rows {
		i, seen := at[row.Identity]
		if !seen {
			i, at[row.Identity] = len(last), len(last)
			last = append(last, row)
		}
		last[i] = row
	}
	return last
}

// bulkRead is a read of the records of a bulk write, in its order: the current state of each, with
// revision -1 for a stream without events, and up to which position no other bulk write of one of
// them was pending.
type bulkRead struct {
	head    eventstore.Position
	current []work.RecordHead
}

// readRecords reads the records as the directory has them at the head of the log. The fault is conflict
// if another bulk write of one of them is pending.
func (s *Service) readRecords(ctx context.Context, call engine.Call, b *bulk) (read bulkRead, err error) {
	if read.head, err = s.journal.Store.Head(ctx); err != nil {
		return read, engine.Unavailable(err)
	}
	waitCtx, cancel := context.WithTimeout(ctx, engine.VisibleTimeout)
	defer cancel()
	if err := s.waiter.Wait(waitCtx, read.head, projection.Directory); err != nil {
		return read, err
	}
	open, err := s.directory.OpenBulks(ctx, call.Principal.Project, b.ids)
	if err != nil {
		return read, err
	}
	if len(open) > 0 {
		return read, fault.New(fault.Conflict, fault.CodeConflict,
			"another bulk write of some of the identities is pending; nothing was applied, retry")
	}
	// A bulk write that was committed since is after this read, and is completed before the rows of
	// this one.
	known, err := s.directory.RecordHeads(ctx, call.Principal.Project, b.ids)
	if err != nil {
		return read, err
	}
	read.current = make([]work.RecordHead, len(b.ids))
	for i, id := range b.ids {
		read.current[i].Revision = eventstore.NoStream
		if at, ok := known[id]; ok {
			read.current[i] = at
		}
	}
	return read, nil
}

func conflictError(name string) *fault.Error {
	return fault.New(fault.Conflict, fault.CodeConflict,
		"the identity %q was written at the same time; nothing was applied, retry", name)
}

// writeRows stages the rows, one JSON value a line, in a blob of the bulk write.
func writeRows(ctx context.Context, l *engine.Journal, call engine.Call, b *bulk, command uuid.UUID) (blob.Ref, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for i, row := range b.rows {
		line := struct {
			identity.Row
			engine.Salt
		}{Row: row}
		if i == 0 {
			line.Salt = engine.NewSalt()
		}
		if err := enc.Encode(line); err != nil {
			return blob.Ref{}, fmt.Errorf("stage row %d: %w", i, err)
		}
	}
	project, meta := b.accepted.ProjectID, call.Meta(command)
	ref, err := l.StoreBlob(ctx, &b.stage, b.id, command, project, b.deadline, meta, buf.Bytes(), b.ids...)
	return ref, engine.Unavailable(err)
}

// readBulk prepares a committed bulk write to be fanned out again. It returns nil if the fan-out is
// complete. If its rows cannot be read, it returns the write without them and a *StageError.
func readBulk(ctx context.Context, l *engine.Journal, id uuid.UUID, now time.Time) (*bulk, error) {
	events, err := l.ReadFrom(ctx, stream.Name(stream.Bulk, id), 0)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	accepted, ok := events[0].Event.(*identity.BulkAccepted)
	if !ok {
		return nil, fmt.Errorf("bulk write %s begins with %s", id, events[0].Type)
	}
	if bulkFannedOut(events) != nil {
		return nil, nil //nolint:nilnil // there is nothing to do
	}
	b := &bulk{id: id, accepted: *accepted, commit: events[0].Position, deadline: now.Add(blob.Keep)}
	data, err := l.ReadBlob(ctx, accepted.Rows)
	if _, is := errors.AsType[*eventstore.BlobError](err); is {
		// The run that completes the fan-out tombstones the rows.
		events, readErr := l.ReadFrom(ctx, stream.Name(stream.Bulk, id), 1)
		if readErr == nil && bulkFannedOut(events) != nil {
			return nil, nil //nolint:nilnil // there is nothing to do
		}
		return b, &engine.StageError{Send: id, Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("rows of bulk write %s: %w", id, engine.Unavailable(err))
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	for i, target := range accepted.Targets {
		var row identity.Row
		if err := dec.Decode(&row); err != nil {
			return b, &engine.StageError{Send: id, Err: fmt.Errorf("row %d: %w", i, err)}
		}
		b.rows, b.ids = append(b.rows, row), append(b.ids, target.IdentityID)
	}
	return b, nil
}

// bulkFannedOut returns the end of a bulk write, nil before its fan-out is complete.
func bulkFannedOut(events []eventstore.DecodedEvent) *identity.BulkFannedOut {
	for _, f := range events {
		if done, ok := f.Event.(*identity.BulkFannedOut); ok {
			return done
		}
	}
	return nil
}

// Meta is the metadata of what the fan-out appends, in any process. what names the event within it.
func (b *bulk) meta(what string) event.Meta {
	return event.Meta{
		RequestID: b.accepted.RequestID, CommandID: uuid.NewSHA1(b.accepted.FanOut, []byte(what)),
		Principal: b.accepted.Principal, CorrelationID: b.accepted.RequestID, At: b.accepted.AcceptedAt,
	}
}

// project is the project of a committed write, for queries of the directory.
func (b *bulk) project() auth.Project { return auth.Project{ID: b.accepted.ProjectID} }
