package node

import (
	"bytes"
	"context"
	"fmt"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"

	"github.com/annals-project/annals/eventstore/node/storage"
)

// defaultWindow is how many events are considered between two checkpoints, unless the client sets
// it.
const defaultWindow = 32

// filter selects events of the whole log by their stream or type: by prefixes or by an expression.
type filter struct {
	byType   bool
	prefixes [][]byte
	pattern  *pattern
	// interval is how many events, selected or not, a subscription considers between two
	// checkpoints.
	interval int
}

// parseFilter reads a filter; nil selects everything. Only a subscription must set its checkpoint interval: a read has
// no checkpoints, and the .NET client sets an interval of 0 for it.
func parseFilter(o *streams.ReadReq_Options_FilterOptions, subscribe bool) (*filter, error) {
	if o == nil {
		return nil, nil //nolint:nilnil // no filter, and nothing wrong
	}
	f := &filter{interval: defaultWindow}
	if window, ok := o.GetWindow().(*streams.ReadReq_Options_FilterOptions_Max); ok && window.Max > 0 {
		f.interval = int(window.Max)
	}
	multiplier := int(o.GetCheckpointIntervalMultiplier())
	if multiplier == 0 && subscribe {
		return nil, errInvalid("the filter of a subscription must set its checkpoint interval")
	}
	f.interval *= multiplier
	var by *streams.ReadReq_Options_FilterOptions_Expression
	switch kind := o.GetFilter().(type) {
	case *streams.ReadReq_Options_FilterOptions_EventType:
		f.byType, by = true, kind.EventType
	case *streams.ReadReq_Options_FilterOptions_StreamIdentifier:
		by = kind.StreamIdentifier
	}
	switch {
	case len(by.GetPrefix()) > 0:
		for _, prefix := range by.GetPrefix() {
			f.prefixes = append(f.prefixes, []byte(prefix))
		}
	case by.GetRegex() != "":
		var err error
		if f.pattern, err = newPattern(by.GetRegex()); err != nil {
			return nil, err
		}
	default:
		return nil, errInvalid("a filter must have prefixes or an expression")
	}
	return f, nil
}

// wants reports whether an event passes; a nil filter passes all.
func (f *filter) wants(ctx context.Context, e storage.Entry) (bool, error) {
	if f == nil {
		return true, nil
	}
	r, err := storage.ParseRecord(e.Record)
	if err != nil {
		return false, fmt.Errorf("event at position %d: %w", e.Position, err)
	}
	name := r.Stream
	if f.byType {
		name = r.Type
	}
	if f.pattern != nil {
		return f.pattern.matches(ctx, name)
	}
	for _, prefix := range f.prefixes {
		if bytes.HasPrefix(name, prefix) {
			return true, nil
		}
	}
	return false, nil
}

// checkpoints sends a filtered subscriber the position up to which the log was considered, so that
// it can continue there even if nothing was selected. A nil one sends nothing.
type checkpoints struct {
	every int
	since int
	sent  uint64
	send  func(*streams.ReadResp) error
}

func newCheckpoints(f *filter, after uint64, send func(*streams.ReadResp) error) *checkpoints {
	if f == nil {
		return nil
	}
	return &checkpoints{every: f.interval, sent: after, send: send}
}

// count counts an event that was sent or left out, and sends its position when one is due.
func (c *checkpoints) count(position uint64) error {
	if c == nil {
		return nil
	}
	if c.since++; c.since < c.every {
		return nil
	}
	return c.sendAt(position)
}

// sendAt sends a position that was not sent yet.
func (c *checkpoints) sendAt(position uint64) error {
	if c == nil || position <= c.sent {
		return nil
	}
	c.since, c.sent = 0, position
	return c.send(&streams.ReadResp{Content: &streams.ReadResp_Checkpoint_{
		Checkpoint: &streams.ReadResp_Checkpoint{CommitPosition: position, PreparePosition: position},
	}})
}
