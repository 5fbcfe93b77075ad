package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strconv"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/panics"
)

// Sender takes a batch. *client.Client is one.
type Sender interface {
	IngestBatch(ctx context.Context, b client.Batch) (*client.BatchReceipt, error)
}

// Import is one run over one input.
type Import struct {
	To Sender
	// In is the whole input, from its first byte.
	In io.Reader
	// State is where to begin: NewState, or what an earlier run left.
	State State
	// Parallel is how many batches are in flight at once; 0 is 4.
	Parallel int
	// Items bounds a batch; 0 is MaxItems.
	Items int
	// Moved is called each time that the acknowledged part of the input grows, from one goroutine. Its
	// error ends the run. It may be nil.
	Moved func(State) error
}

// Run sends what State has not sent yet, and returns how far it came, with an error or without. Batches that are in
// flight when one is refused are still awaited.
func (im Import) Run(ctx context.Context) (State, error) {
	l := newLines(im.In)
	if err := l.skip(im.State.Offset); err != nil {
		return im.State, err
	}
	if l.sum() != im.State.Sum {
		return im.State, errors.New(
			"the part of the input that was sent has changed since: remove the progress file to send everything again",
		)
	}
	r := &flight{
		im:      im,
		cut:     &batches{lines: l, limit: cmp.Or(im.Items, MaxItems), end: im.State.Offset},
		results: make(chan *sent),
		busy:    map[string]int{},
		state:   im.State,
		limit:   cmp.Or(im.Parallel, 4),
	}
	return r.run(ctx)
}

// sent is a batch with its outcome.
type sent struct {
	*batch
	sentItems
	number int
	err    error
}

// flight is the state of a run; only the goroutine of run touches it.
type flight struct {
	im      Import
	cut     *batches
	limit   int
	results chan *sent
	// busy counts, for each source id, the batches in flight that carry it: at most one.
	busy map[string]int
	// started and flying count batches; done holds those that came back before one that was sent earlier.
	started, flying int
	done            map[int]*sent
	acknowledged    int
	state           State
	// skipped is how many of the lines that were skipped in this run are in state.
	skipped int
}

func (f *flight) run(ctx context.Context) (State, error) {
	f.done = map[int]*sent{}
	next, failed := f.cut.next()
	for {
		for failed == nil && f.flying < f.limit && !f.collides(next) {
			f.start(ctx, next)
			next, failed = f.cut.next()
		}
		if f.flying == 0 {
			break
		}
		// A batch that was sent is awaited even after ctx is over: its request ends with ctx.
		if err := f.land(<-f.results); err != nil && (failed == nil || errors.Is(failed, io.EOF)) {
			failed = err
		}
	}
	if errors.Is(failed, io.EOF) {
		failed = nil
		f.countSkipped(f.cut.lines.skipped) // after the last data point
	}
	return f.state, failed
}

// countSkipped counts lines of this run, up to those before some place, once.
func (f *flight) countSkipped(before int) {
	f.state.Skipped += before - f.skipped
	f.skipped = before
}

// collides reports whether a batch in flight has one of the ids: the revisions of an id keep their
// order.
func (f *flight) collides(b *batch) bool {
	return slices.ContainsFunc(b.ids, func(id string) bool { return f.busy[id] > 0 })
}

func (f *flight) start(ctx context.Context, b *batch) {
	for _, id := range b.ids {
		f.busy[id]++
	}
	s := &sent{batch: b, number: f.started}
	f.started++
	f.flying++
	go func() {
		s.err = panics.Call(ctx, slog.Default(), "sending a batch panicked", func() (err error) {
			key := b.key(f.im.State.ImportID)
			s.sentItems, err = sendItems(ctx, f.im.To, b.items, key)
			return err
		})
		f.results <- s
	}()
}

// land records the outcome of a batch and extends the acknowledged part up to the first gap.
func (f *flight) land(s *sent) error {
	f.flying--
	for _, id := range s.ids {
		if f.busy[id]--; f.busy[id] == 0 {
			delete(f.busy, id)
		}
	}
	if s.err != nil {
		return s.explain()
	}
	if f.state.ProjectID != 0 && s.receipt != nil && s.receipt.ProjectID != f.state.ProjectID {
		return errors.New("the key belongs to another project than the one of this import: " +
			"remove the progress file to send everything to the other project")
	}
	f.done[s.number] = s
	moved := false
	for {
		b, ok := f.done[f.acknowledged]
		if !ok {
			break
		}
		delete(f.done, f.acknowledged)
		f.acknowledged++
		f.state.advance(b)
		f.countSkipped(b.skipped)
		moved = true
	}
	if moved && f.im.Moved != nil {
		return f.im.Moved(f.state)
	}
	return nil
}

func (s *State) advance(b *sent) {
	if b.receipt != nil { // nothing is left of some batches
		s.ProjectID, s.LastIngestion = b.receipt.ProjectID, b.receipt.IngestionID
	}
	s.Offset, s.Sum = b.end, b.sum
	s.Points += len(b.items) - len(b.left)
	s.Batches++
	s.Unchanged += b.unchanged()
	for _, left := range b.left {
		left.Line = b.lines[left.Item]
		s.leave(left)
	}
}

// maxLeft is how many data points of an input are named that were left out; all are counted.
const maxLeft = 1000

// leave counts a data point that was left out.
func (s *State) leave(left LeftOut) {
	if left.Deleted {
		s.Deleted++
	} else {
		s.Refused++
	}
	if len(s.Left) < maxLeft {
		s.Left = append(s.Left, left)
	}
}

var namedItem = regexp.MustCompile(`\bitems?(?:\[| (?:at )?(?:position )?)(\d+)\b`)

// explain names the lines of the input that a refused batch came from.
func (s *sent) explain() error {
	refused, ok := errors.AsType[*client.APIError](s.err)
	if !ok {
		return s.err
	}
	// The server names an item by its position in the batch; the reader of the file knows lines.
	if m := namedItem.FindStringSubmatch(refused.Message); m != nil {
		if i, err := strconv.Atoi(m[1]); err == nil && i < len(s.lines) {
			return fmt.Errorf("line %d was refused: %w", s.lines[i], s.err)
		}
	}
	return fmt.Errorf("lines %d to %d were refused: %w", s.lines[0], s.lines[len(s.lines)-1], s.err)
}
