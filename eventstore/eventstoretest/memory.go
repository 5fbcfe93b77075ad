// Package eventstoretest has an event store in memory, for tests without a server, and checks of what a store keeps.
package eventstoretest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

// Memory is an event store in memory that fulfils the whole contract of the port, for tests without
// a server.
type Memory struct {
	mu      sync.Mutex
	log     []eventstore.Recorded
	streams map[string]*memoryStream
	// wake is closed and replaced at each append, and when subscriptions are dropped.
	wake    chan struct{}
	dropped uint64
	now     func() time.Time
}

type memoryStream struct {
	// events are all events ever stored; those before cut are deleted.
	events     []eventstore.Recorded
	cut        int
	tombstoned bool
}

func (s *memoryStream) last() eventstore.Revision { return eventstore.Revision(len(s.events)) - 1 }

func (s *memoryStream) softDeleted() bool { return len(s.events) > 0 && s.cut == len(s.events) }

// gap is the distance between positions, so that no test depends on consecutive ones.
const gap = 7

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{streams: map[string]*memoryStream{}, wake: make(chan struct{}), now: time.Now}
}

var _ eventstore.Store = (*Memory)(nil)

// Copy returns a store that holds what this one holds now, as one that is put back from a backup.
func (m *Memory) Copy() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMemory()
	c.log, c.now = slices.Clone(m.log), m.now
	for name, s := range m.streams {
		c.streams[name] = &memoryStream{events: slices.Clone(s.events), cut: s.cut, tombstoned: s.tombstoned}
	}
	return c
}

// DropSubscriptions ends every open subscription, as a lost connection does.
func (m *Memory) DropSubscriptions() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropped++
	m.rouse()
}

func (m *Memory) rouse() {
	close(m.wake)
	m.wake = make(chan struct{})
}

func (m *Memory) stream(name string) *memoryStream {
	s := m.streams[name]
	if s == nil {
		s = &memoryStream{}
		m.streams[name] = s
	}
	return s
}

// record stores one event at the end of the log.
func (m *Memory) record(name string, revision eventstore.Revision, p eventstore.Proposed) eventstore.Recorded {
	r := eventstore.Recorded{
		Stream: name, Revision: revision, Position: eventstore.Position(len(m.log)+1) * gap, ID: p.ID, Type: p.Type,
		Data: slices.Clone(p.Data), Meta: slices.Clone(p.Meta), Created: m.now().UTC(),
	}
	m.log = append(m.log, r)
	return r
}

// Append implements eventstore.Store.
func (m *Memory) Append(
	ctx context.Context, stream string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	if err := ctx.Err(); err != nil {
		return eventstore.Appended{}, fmt.Errorf("append to %s: %w", stream, err)
	}
	size := 0
	for i, e := range events {
		if e.ID == uuid.Nil || e.Type == "" {
			return eventstore.Appended{}, fmt.Errorf("append to %s: event %d has no id or no type", stream, i)
		}
		size += e.Size()
	}
	if len(events) == 0 || expected < eventstore.NoStream {
		return eventstore.Appended{}, fmt.Errorf("append to %s: no events, or %d is no revision", stream, expected)
	}
	if size > eventstore.MaxAppend {
		return eventstore.Appended{}, fmt.Errorf("append to %s: %w", stream, eventstore.ErrTooLarge)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stream(stream)
	if s.tombstoned {
		return eventstore.Appended{}, fmt.Errorf("append to %s: %w", stream, eventstore.ErrDeleted)
	}
	if expected < s.last() {
		if done, ok := s.repeated(expected, events); ok {
			return done, nil
		}
	}
	if expected != s.last() && !(expected == eventstore.NoStream && s.softDeleted()) {
		return eventstore.Appended{}, fmt.Errorf("append to %s at %d: %w", stream, expected, eventstore.ErrConflict)
	}
	for _, e := range events {
		s.events = append(s.events, m.record(stream, s.last()+1, e))
	}
	m.rouse()
	last := s.events[len(s.events)-1]
	return eventstore.Appended{Revision: last.Revision, Position: last.Position}, nil
}

// repeated reports whether the same events are stored after a revision, and their outcome.
func (s *memoryStream) repeated(
	expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, bool) {
	stored := s.events[expected+1:]
	if len(events) > len(stored) {
		return eventstore.Appended{}, false
	}
	for i, e := range events {
		if stored[i].ID != e.ID {
			return eventstore.Appended{}, false
		}
	}
	last := stored[len(events)-1]
	return eventstore.Appended{Revision: last.Revision, Position: last.Position}, true
}

// Read implements eventstore.Store.
func (m *Memory) Read(
	ctx context.Context, stream string, from eventstore.Revision, direction eventstore.Direction, limit int,
) ([]eventstore.Recorded, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", stream, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.streams[stream]
	if s == nil {
		return nil, nil
	}
	if s.tombstoned {
		return nil, fmt.Errorf("read %s: %w", stream, eventstore.ErrDeleted)
	}
	var read []eventstore.Recorded
	if direction == eventstore.Backwards {
		for i := int(min(from, s.last())); i >= s.cut && len(read) < limit; i-- {
			read = append(read, s.events[i])
		}
		return read, nil
	}
	for i := max(int(min(from, s.last()+1)), s.cut); i < len(s.events) && len(read) < limit; i++ {
		read = append(read, s.events[i])
	}
	return read, nil
}

// ReadLast implements eventstore.Store.
func (m *Memory) ReadLast(ctx context.Context, stream string) (eventstore.Recorded, bool, error) {
	read, err := m.Read(ctx, stream, 1<<62, eventstore.Backwards, 1)
	if err != nil || len(read) == 0 {
		return eventstore.Recorded{}, false, err
	}
	return read[0], true, nil
}

// ReadAll implements eventstore.Store.
func (m *Memory) ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Recorded, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.page(after, limit), nil
}

func (m *Memory) page(after eventstore.Position, limit int) []eventstore.Recorded {
	var read []eventstore.Recorded
	first, size := int(min(after/gap, eventstore.Position(len(m.log)))), 0
	for i := first; i < len(m.log) && len(read) < limit && size < eventstore.MaxPage; i++ {
		if m.log[i].Position == 0 {
			continue // scavenged
		}
		read = append(read, m.log[i])
		size += m.log[i].Size()
	}
	return read
}

// ReadAt implements eventstore.Store.
func (m *Memory) ReadAt(ctx context.Context, at eventstore.Position) (eventstore.Recorded, bool, error) {
	if err := ctx.Err(); err != nil {
		return eventstore.Recorded{}, false, fmt.Errorf("read the log: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if at%gap != 0 {
		return eventstore.Recorded{}, false, fmt.Errorf("read the log at %d: %w", at, eventstore.ErrNoEvent)
	}
	if at == 0 || at/gap > eventstore.Position(len(m.log)) || m.log[at/gap-1].Position == 0 {
		return eventstore.Recorded{}, false, nil
	}
	return m.log[at/gap-1], true, nil
}

// Head implements eventstore.Store.
func (m *Memory) Head(ctx context.Context) (eventstore.Position, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("read the head of the log: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return eventstore.Position(len(m.log)) * gap, nil
}

// Delete implements eventstore.Store.
func (m *Memory) Delete(ctx context.Context, stream string, expected eventstore.Revision) (eventstore.Position, error) {
	return m.end(ctx, stream, expected, func(s *memoryStream) (string, error) {
		if s.last() == eventstore.NoStream || s.softDeleted() {
			return "", eventstore.ErrConflict
		}
		s.cut = len(s.events)
		return "$metadata", nil
	})
}

// Tombstone implements eventstore.Store.
func (m *Memory) Tombstone(
	ctx context.Context, stream string, expected eventstore.Revision,
) (eventstore.Position, error) {
	return m.end(ctx, stream, expected, func(s *memoryStream) (string, error) {
		s.tombstoned = true
		return "$streamDeleted", nil
	})
}

// Truncate implements eventstore.Store.
func (m *Memory) Truncate(ctx context.Context, stream string, before eventstore.Revision) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("truncate %s: %w", stream, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stream(stream)
	switch {
	case s.tombstoned:
		return fmt.Errorf("truncate %s: %w", stream, eventstore.ErrDeleted)
	case before > s.last(), s.softDeleted(), before < 0:
		return fmt.Errorf("truncate %s before %d: %w", stream, before, eventstore.ErrConflict)
	case int(before) <= s.cut:
		return nil
	}
	s.cut = int(before)
	m.record("$$"+stream, 1<<62, eventstore.Proposed{ID: uuid.New(), Type: eventstore.MetadataType})
	m.rouse()
	return nil
}

// Restore implements eventstore.Store.
func (m *Memory) Restore(ctx context.Context, stream string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("restore %s: %w", stream, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.streams[stream]
	if s == nil || s.cut == 0 {
		return false, nil
	}
	s.cut = 0
	m.record("$$"+stream, 1<<62, eventstore.Proposed{ID: uuid.New(), Type: eventstore.MetadataType})
	m.rouse()
	return true, nil
}

func (m *Memory) end(
	ctx context.Context, stream string, expected eventstore.Revision, change func(*memoryStream) (string, error),
) (eventstore.Position, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("end %s: %w", stream, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stream(stream)
	if s.tombstoned {
		return 0, fmt.Errorf("end %s: %w", stream, eventstore.ErrDeleted)
	}
	if expected != s.last() && !(expected == eventstore.NoStream && s.softDeleted()) {
		return 0, fmt.Errorf("end %s at %d: %w", stream, expected, eventstore.ErrConflict)
	}
	name, err := change(s)
	if err != nil {
		return 0, fmt.Errorf("end %s at %d: %w", stream, expected, err)
	}
	if name == "$metadata" {
		stream = "$$" + stream
	}
	r := m.record(stream, 1<<62, eventstore.Proposed{ID: uuid.New(), Type: name})
	m.rouse()
	return r.Position, nil
}

// Scavenge removes from the log what was deleted, as a node's does: the last event of a stream that can continue stays.
func (m *Memory) Scavenge(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("scavenge: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, r := range m.log {
		s := m.streams[r.Stream]
		if s == nil || r.System() {
			continue
		}
		if s.tombstoned || r.Revision < eventstore.Revision(s.cut) && r.Revision < s.last() {
			m.log[i] = eventstore.Recorded{}
		}
	}
	return nil
}

// Close implements eventstore.Store.
func (m *Memory) Close() error { return nil }

// Subscribe implements eventstore.Store.
func (m *Memory) Subscribe(ctx context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("follow the log: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memorySubscription{store: m, after: after, ctx: ctx, cancel: cancel, dropped: m.dropped}, nil
}

type memorySubscription struct {
	store   *Memory
	after   eventstore.Position
	ctx     context.Context
	cancel  context.CancelFunc
	dropped uint64
}

var errDropped = errors.New("subscription was dropped")

// Next implements eventstore.Subscription.
func (s *memorySubscription) Next(ctx context.Context) (eventstore.Recorded, error) {
	for {
		s.store.mu.Lock()
		wake, dropped := s.store.wake, s.store.dropped != s.dropped
		next := s.store.page(s.after, 1)
		s.store.mu.Unlock()
		switch {
		case s.ctx.Err() != nil:
			return eventstore.Recorded{}, s.ctx.Err()
		case ctx.Err() != nil:
			return eventstore.Recorded{}, ctx.Err()
		case dropped:
			return eventstore.Recorded{}, fmt.Errorf("%w: %w", eventstore.ErrUnavailable, errDropped)
		case len(next) > 0:
			s.after = next[0].Position
			return next[0], nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
	}
}

// Close implements eventstore.Subscription.
func (s *memorySubscription) Close() error {
	s.cancel()
	return nil
}
