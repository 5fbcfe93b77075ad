package node

import (
	"bytes"
	"context"
	"fmt"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
)

// defaultWindow is how many events are considered between two checkpoints where the client does not say.
const defaultWindow = 32

// filter chooses events of the whole log by their stream or their type: by one of several prefixes or by an expression.
type filter struct {
	byType   bool
	prefixes [][]byte
	pattern  *pattern
	// interval is how many events, wanted or not, a subscription considers between two checkpoints.
	interval int
}

// filterOf reads a filter; nil where the client wants everything.
func filterOf(o *streams.ReadReq_Options_FilterOptions) (*filter, error) {
	if o == nil {
		return nil, nil //nolint:nilnil // no filter, and nothing wrong
	}
	f := &filter{interval: defaultWindow}
	if window, ok := o.GetWindow().(*streams.ReadReq_Options_FilterOptions_Max); ok && window.Max > 0 {
		f.interval = int(window.Max)
	}
	multiplier := int(o.GetCheckpointIntervalMultiplier())
	if multiplier == 0 {
		return nil, errInvalid("a filter says after how many windows it wants a checkpoint")
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
		return nil, errInvalid("a filter has prefixes or an expression")
	}
	return f, nil
}

// wants says whether an event passes; a nil filter passes all.
func (f *filter) wants(ctx context.Context, e entry) (bool, error) {
	if f == nil {
		return true, nil
	}
	r, err := parseRecord(e.record)
	if err != nil {
		return false, fmt.Errorf("event at position %d: %w", e.position, err)
	}
	name := r.stream
	if f.byType {
		name = r.typ
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

// checkpoints tells a filtered subscriber how far the log was considered, so that it can go on from there although
// nothing of it was wanted. A nil one tells nothing.
type checkpoints struct {
	every int
	since int
	told  uint64
	send  func(*streams.ReadResp) error
}

func newCheckpoints(f *filter, after uint64, send func(*streams.ReadResp) error) *checkpoints {
	if f == nil {
		return nil
	}
	return &checkpoints{every: f.interval, told: after, send: send}
}

// considered counts an event that was sent or left out, and tells its position if it is time.
func (c *checkpoints) considered(position uint64) error {
	if c == nil {
		return nil
	}
	if c.since++; c.since < c.every {
		return nil
	}
	return c.tell(position)
}

// tell tells a position that was not told yet.
func (c *checkpoints) tell(position uint64) error {
	if c == nil || position <= c.told {
		return nil
	}
	c.since, c.told = 0, position
	return c.send(&streams.ReadResp{Content: &streams.ReadResp_Checkpoint_{
		Checkpoint: &streams.ReadResp_Checkpoint{CommitPosition: position, PreparePosition: position},
	}})
}
