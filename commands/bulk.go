package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/todo"
)

// IdentityStatus says of one identity of a bulk write whether it was created or updated.
type IdentityStatus struct {
	Identity string `json:"identity"`
	Status   string `json:"status"`
}

// BulkIdentities creates records or replaces all of their traits, all or none; of an identity that stands twice the last row counts.
// It answers once recall follows it, with one status for each distinct identity in the order of first appearance.
//
// Rows are within their limits, 1 to 1,000. Its faults are conflict, where another write of one of the identities was seen before the
// commit: then nothing is applied; and service-unavailable, with "committed" in its data where the write is stored.
func (s *Service) BulkIdentities(ctx context.Context, call Call, rows []identity.Row) ([]IdentityStatus, error) {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	b := newBulk(call, distinct(rows))
	before, err := s.lookUp(decideCtx, call, b)
	if err != nil {
		return nil, err
	}
	command := uuid.New()
	b.accepted.FanOut = uuid.NewSHA1(command, []byte("fan-out"))
	if b.accepted.Rows, err = s.Log.writeRows(decideCtx, call, b, command); err != nil {
		return nil, err
	}
	// Between the two looks the rows were written, which may take long. What moves behind the second is set in order by the fan-out.
	now, err := s.lookUp(decideCtx, call, b)
	if err != nil {
		return nil, err
	}
	for i, id := range b.ids {
		if before.standing[i].Revision != now.standing[i].Revision {
			return nil, raced(b.rows[i].Identity)
		}
		b.accepted.Targets[i] = identity.BulkTarget{IdentityID: id, Decided: int64(now.standing[i].Revision)}
	}
	b.looked = &now
	name := stream.Name(stream.Bulk, b.id)
	done, err := s.Log.appendReferring(decideCtx, &b.stage, name, eventstore.NoStream, call.meta(command), b.accepted)
	if err != nil {
		return nil, err
	}
	b.commit = done.Position
	// From here on the write is accepted whatever becomes of the caller. It is visible as a whole once the directory has the commit.
	fanCtx, cancelFan := context.WithTimeout(context.WithoutCancel(ctx), fanOutTimeout)
	defer cancelFan()
	statuses, err := s.Log.fanOutBulk(fanCtx, s.Directory, s.Waiter, b)
	if err != nil {
		s.Log.Logger.ErrorContext(ctx, "fan-out is left to the finisher", "bulk", b.id, "err", err)
		return nil, fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the bulk write is accepted but not answered in time; it takes effect all the same").With("committed", true)
	}
	answer := make([]IdentityStatus, len(b.rows))
	for i, row := range b.rows {
		answer[i] = IdentityStatus{Identity: row.Identity, Status: statuses[i]}
	}
	return answer, nil
}

// bulk is a bulk write on its way through commit and fan-out.
type bulk struct {
	id       uuid.UUID
	accepted identity.BulkAccepted
	stage    written
	commit   eventstore.Position
	rows     []identity.Row
	ids      []uuid.UUID
	// deadline is until when its blobs are kept that nothing refers to.
	deadline time.Time
	// looked is what it was decided on. It is nil for one that another run began: its rows may stand already.
	looked *bulkLook
}

func newBulk(call Call, rows []identity.Row) *bulk {
	b := &bulk{id: uuid.Must(uuid.NewV7()), rows: rows, ids: make([]uuid.UUID, len(rows)), deadline: call.ReceivedAt.Add(BlobKeep)}
	for i, row := range rows {
		b.ids[i] = stream.IdentityID(call.Principal.Project.Namespace, row.Identity)
	}
	b.accepted = identity.BulkAccepted{
		ProjectID: call.Principal.Project.ID, RequestID: call.RequestID, Principal: call.Principal.Name(), Origin: identity.OriginAPI,
		Targets: make([]identity.BulkTarget, len(rows)), AcceptedAt: call.ReceivedAt,
	}
	return b
}

// distinct is the last row of each identity, in the order in which they first appear.
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

// bulkLook is a look at the records of a bulk write, in its order: what stands of each, with revision -1 where there was never
// anything, and up to where of the log no other bulk write of one of them was open.
type bulkLook struct {
	head     eventstore.Position
	standing []todo.Standing
}

// lookUp looks at the records as the directory has them at the head of the log. The fault is conflict where another bulk write of one
// of them is not done.
func (s *Service) lookUp(ctx context.Context, call Call, b *bulk) (look bulkLook, err error) {
	if look.head, err = s.Log.Store.Head(ctx); err != nil {
		return look, unavailable(err)
	}
	waitCtx, cancel := context.WithTimeout(ctx, visibleTimeout)
	defer cancel()
	if err := s.Waiter.Wait(waitCtx, look.head, projectionDirectory); err != nil {
		return look, err
	}
	open, err := s.Directory.OpenBulks(ctx, call.Principal.Project, b.ids)
	if err != nil {
		return look, err
	}
	if len(open) > 0 {
		return look, fault.New(fault.Conflict, fault.CodeConflict, "another bulk write of some of the identities is not finished: nothing was applied, retry")
	}
	// What became open since then is behind the look, and is completed before the rows of this one.
	known, err := s.Directory.Standing(ctx, call.Principal.Project, b.ids)
	if err != nil {
		return look, err
	}
	look.standing = make([]todo.Standing, len(b.ids))
	for i, id := range b.ids {
		look.standing[i].Revision = eventstore.NoStream
		if at, ok := known[id]; ok {
			look.standing[i] = at
		}
	}
	return look, nil
}

func raced(name string) *fault.Error {
	return fault.New(fault.Conflict, fault.CodeConflict, "the identity %q was written at the same time: nothing was applied, retry", name)
}

// writeRows stages the rows, one JSON value a line, in a blob of the bulk write.
func (l *Log) writeRows(ctx context.Context, call Call, b *bulk, command uuid.UUID) (blob.Ref, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for i, row := range b.rows {
		line := struct {
			identity.Row
			salt
		}{Row: row}
		if i == 0 {
			line.salt = newSalt()
		}
		if err := enc.Encode(line); err != nil {
			return blob.Ref{}, fmt.Errorf("stage row %d: %w", i, err)
		}
	}
	project, meta := b.accepted.ProjectID, call.meta(command)
	ref, err := l.writeBlob(ctx, &b.stage, b.id, command, project, b.deadline, meta, buf.Bytes(), b.ids...)
	return ref, unavailable(err)
}

// readBulk makes a committed bulk write ready to be fanned out again; it is nil where it is fanned out. The error is a *stageError
// where its rows cannot be read, beside the write without them.
func (l *Log) readBulk(ctx context.Context, id uuid.UUID, now time.Time) (*bulk, error) {
	facts, err := l.ReadFrom(ctx, stream.Name(stream.Bulk, id), 0)
	if err != nil || len(facts) == 0 {
		return nil, err
	}
	accepted, ok := facts[0].Event.(*identity.BulkAccepted)
	if !ok {
		return nil, fmt.Errorf("bulk write %s begins with %s", id, facts[0].Type)
	}
	if bulkFannedOut(facts) != nil {
		return nil, nil //nolint:nilnil // there is nothing to do
	}
	b := &bulk{id: id, accepted: *accepted, commit: facts[0].Position, deadline: now.Add(BlobKeep)}
	data, err := eventstore.ReadBlob(ctx, l.Store, l.Codec, accepted.Rows)
	if _, is := errors.AsType[*eventstore.BlobError](err); is {
		// The run that finished it ends the rows.
		if facts, readErr := l.ReadFrom(ctx, stream.Name(stream.Bulk, id), 1); readErr == nil && bulkFannedOut(facts) != nil {
			return nil, nil //nolint:nilnil // there is nothing to do
		}
		return b, &stageError{send: id, err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("rows of bulk write %s: %w", id, unavailable(err))
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	for i, target := range accepted.Targets {
		var row identity.Row
		if err := dec.Decode(&row); err != nil {
			return b, &stageError{send: id, err: fmt.Errorf("row %d: %w", i, err)}
		}
		b.rows, b.ids = append(b.rows, row), append(b.ids, target.IdentityID)
	}
	return b, nil
}

// bulkFannedOut is the end of a bulk write, nil where it is not fanned out.
func bulkFannedOut(facts []eventstore.Fact) *identity.BulkFannedOut {
	for _, f := range facts {
		if done, ok := f.Event.(*identity.BulkFannedOut); ok {
			return done
		}
	}
	return nil
}

// meta is the metadata of what the fan-out appends, whoever runs it; what names the event within it.
func (b *bulk) meta(what string) event.Meta {
	return event.Meta{
		RequestID: b.accepted.RequestID, CommandID: uuid.NewSHA1(b.accepted.FanOut, []byte(what)), Principal: b.accepted.Principal,
		CorrelationID: b.accepted.RequestID,
	}
}

// project is what the directory asks by, as far as a committed write knows it.
func (b *bulk) project() auth.Project { return auth.Project{ID: b.accepted.ProjectID} }
