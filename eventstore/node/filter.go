package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/dlclark/regexp2"
	"github.com/dlclark/regexp2/syntax"

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

const (
	// maxExpression is the most bytes of the expression of a filter. Official clients join all the
	// names that they want in one.
	maxExpression = 16 << 10
	// matchTime is how long the comparison of one name with an expression may take. The engine
	// reads its clock every tenth of a second, so a match ends after at most three times that. It
	// does not read the clock before a thousand steps. A usual match ends earlier, so a busy
	// machine fails none.
	matchTime = 100 * time.Millisecond
)

// pattern is a regular expression by the rules of .NET, which the server uses. Official clients
// exclude events by lookahead, which Go's own engine does not support. Such an engine backtracks,
// for hours with a malicious expression, so each match has a time limit.
type pattern struct {
	compiled *regexp2.Regexp
	limit    time.Duration
}

// newPattern compiles an expression. The error is for the client.
func newPattern(text string) (*pattern, error) {
	if len(text) > maxExpression {
		return nil, errInvalid(fmt.Sprintf(
			"the expression of a filter has %d bytes: at most %d are taken", len(text), maxExpression))
	}
	p := &pattern{limit: matchTime}
	err := recovered(func() (err error) {
		p.compiled, err = regexp2.Compile(text, regexp2.None)
		return err
	})
	var wrong *syntax.Error
	switch {
	case errors.As(err, &wrong): // its text repeats the expression, which may be too long for an answer
		return nil, errInvalid(fmt.Sprintf("the expression of a filter is not understood: %s", wrong.Code))
	case err != nil:
		return nil, errInvalid("the expression of a filter is not understood")
	}
	p.compiled.MatchTimeout = p.limit
	return p, nil
}

// matches reports whether a name matches the expression. A match that takes too long is an error
// for the client.
func (p *pattern) matches(ctx context.Context, name []byte) (found bool, err error) {
	// End a series of slow matches together with its call.
	if err := ctx.Err(); err != nil {
		return false, err
	}
	err = recovered(func() (err error) {
		found, err = p.compiled.MatchString(string(name))
		return err
	})
	if errors.Is(err, errEngine) {
		return false, errInvalid("the expression of a filter cannot be evaluated: write it in another way")
	}
	if err != nil { // its text contains the name
		return false, errInvalid(fmt.Sprintf(
			"the expression of a filter was compared with one name for more than %v: simplify it", p.limit))
	}
	return found, nil
}

var errEngine = errors.New("the engine of expressions panicked")

// recovered turns a panic of the engine into an error, because the expression comes from a client.
func recovered(run func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errEngine, r)
		}
	}()
	return run()
}
