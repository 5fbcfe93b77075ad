package importer

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/fsx"
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

// LeftOut is a data point that the service refused for itself. No further run changes that.
type LeftOut struct {
	ID string `json:"id"`
	// Reason is that of the service, for people.
	Reason string `json:"reason"`
	// Deleted is true for one that was deleted before: it stays out.
	Deleted bool `json:"deleted,omitempty"`
	// Path is the file that it is from, Line its line in an input; "" and 0 for none.
	Path string `json:"path,omitempty"`
	Line int    `json:"line,omitempty"`
	// Item is its place in the batch.
	Item int `json:"-"`
}

// sentItems is what became of a batch.
type sentItems struct {
	// receipt is that of the items that were sent, nil if nothing was left of the batch.
	receipt *client.BatchReceipt
	left    []LeftOut
}

// unchanged counts the data points that the server had.
func (s sentItems) unchanged() (n int) {
	if s.receipt != nil {
		for _, item := range s.receipt.Items {
			if item.Unchanged != nil && *item.Unchanged {
				n++
			}
		}
	}
	return n
}

// sendItems sends a batch. An item that is refused for itself is left out, and the rest is sent under a key of its own:
// the key of a batch belongs to all of its items.
func sendItems(ctx context.Context, to Sender, items []json.RawMessage, key string) (out sentItems, err error) {
	places := make([]int, len(items)) // of the items that are still sent
	for i := range places {
		places[i] = i
	}
	for first := true; len(places) > 0; first = false {
		batch := client.Batch{IdempotencyKey: key}
		for _, i := range places {
			batch.RawItems = append(batch.RawItems, items[i])
		}
		if !first {
			batch.IdempotencyKey = restKey(key, batch.RawItems)
		}
		out.receipt, err = to.IngestBatch(ctx, batch)
		refused, is := errors.AsType[*client.APIError](err)
		if !is {
			break
		}
		out.receipt = nil
		left := refusedItems(refused, batch.RawItems)
		if len(left) == 0 {
			break
		}
		err = nil
		for n := range left {
			left[n].Item = places[left[n].Item]
		}
		out.left = append(out.left, left...)
		places = slices.DeleteFunc(places, func(i int) bool {
			return slices.ContainsFunc(left, func(l LeftOut) bool { return l.Item == i })
		})
	}
	slices.SortFunc(out.left, func(a, b LeftOut) int { return a.Item - b.Item })
	return out, err
}

// restKey is the key of what is left of a batch. It depends on that alone, so that a repeat is found.
func restKey(key string, items []json.RawMessage) string {
	h := sha256.New()
	for _, item := range items {
		_, _ = h.Write(item) // a hash takes everything
		_, _ = h.Write([]byte{'\n'})
	}
	return key + "-rest-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// ownCodes are the codes of refusals that are about one item, and not about the key or the project.
var ownCodes = []string{
	client.CodeDataPointDeleted, client.CodeAudienceUnknown, client.CodeInvalidRequest, client.CodeContentTooLarge,
}

// refusedItems returns the items that a refusal is about, none if it is about the batch. Those with the same unknown
// audience, and all deleted ones, are left out together.
func refusedItems(refused *client.APIError, items []json.RawMessage) (left []LeftOut) {
	if !slices.Contains(ownCodes, refused.Code) {
		return nil
	}
	var data struct {
		Item *int     `json:"item"`
		IDs  []string `json:"ids"`
	}
	if refused.Data != nil && json.Unmarshal(refused.Data, &data) != nil {
		return nil
	}
	at := -1
	if data.Item != nil {
		at = *data.Item
	} else if m := namedItem.FindStringSubmatch(refused.Message); m != nil {
		at, _ = strconv.Atoi(m[1]) // digits
	}
	isDeleted := refused.Code == client.CodeDataPointDeleted
	names := make([]itemName, len(items))
	for i, item := range items {
		names[i] = nameOf(item)
	}
	for i, n := range names {
		is := i == at || isDeleted && slices.Contains(data.IDs, n.id)
		if refused.Code == client.CodeAudienceUnknown && at >= 0 && at < len(items) {
			is = is || n.audience != "" && n.audience == names[at].audience
		}
		if is {
			left = append(left, LeftOut{ID: n.id, Reason: reasonOf(refused, n), Deleted: isDeleted, Item: i})
		}
	}
	return left
}

func reasonOf(refused *client.APIError, of itemName) string {
	switch refused.Code {
	case client.CodeDataPointDeleted:
		return "was deleted before"
	case client.CodeAudienceUnknown:
		return "the project has no audience " + strconv.Quote(of.audience)
	default:
		return itemPlace.ReplaceAllString(refused.Message, "")
	}
}

// itemPlace is the place in a batch, which means nothing to the reader of a file.
var itemPlace = regexp.MustCompile(`^items\[\d+\][.:]? ?`)

// itemName is what names an item of a batch.
type itemName struct{ id, audience string }

func nameOf(item json.RawMessage) itemName {
	var p struct{ ID, Content, Audience string }
	if json.Unmarshal(item, &p) != nil {
		return itemName{}
	}
	if p.ID == "" {
		p.ID = DefaultID(p.Content)
	}
	return itemName{p.ID, p.Audience}
}

// State is the progress of an import. It is written next to the input after each batch.
type State struct {
	Version int `json:"version"`
	// ImportID makes the idempotency keys of this import unique.
	ImportID string `json:"importId"`
	Target
	// ProjectID is the number of the project in its store, 0 before the first batch.
	ProjectID int64 `json:"projectId"`
	// Offset is the end of the part of the input that was acknowledged without a gap, Sum its SHA-256.
	Offset int64  `json:"offset"`
	Sum    string `json:"sha256"`
	// Points counts the data points before Offset, Unchanged those that the server already had.
	Points    int `json:"points"`
	Unchanged int `json:"unchanged"`
	Batches   int `json:"batches"`
	// Skipped counts the memories of an export that were not sent.
	Skipped int `json:"skipped,omitempty"`
	// Deleted and Refused count the data points that were left out: those that were deleted before, and those that the
	// service refused for themselves. Left names the first of them.
	Deleted int       `json:"deleted,omitempty"`
	Refused int       `json:"refused,omitempty"`
	Left    []LeftOut `json:"left,omitempty"`
	// LastIngestion is the id of a send of this import, whose status shows the progress of the project.
	LastIngestion string `json:"lastIngestion"`
}

// Target is where an import sends to.
type Target struct {
	// Server is the address that received the batches.
	Server string `json:"server"`
	// Project is the id of the project, which no other project has, in this store or another. It is "" from a server
	// that sends none, and in a progress file of an earlier version.
	Project string `json:"project,omitempty"`
}

// is reports whether what was sent to t was sent to now.
func (t Target) is(now Target) bool {
	return t.Project == now.Project && (now.Project != "" || t.Server == now.Server)
}

// restart returns why an import to now does not continue the progress that a file holds of one to t.
func (t Target) restart(path string, now Target) string {
	switch {
	case t.Project == "" && t.Server == now.Server:
		return path + " does not name the project that was sent to, because an earlier version wrote it: " +
			"everything is sent again, and what is known is found unchanged"
	case t.Server != now.Server:
		return fmt.Sprintf("%s is the progress of an import to another project, at %s: everything is sent to this one "+
			"(--state FILE keeps the progress of both)", path, t.Server)
	default:
		return path + " is the progress of an import to another project, or to one of another data folder: " +
			"everything is sent to this one (--state FILE keeps the progress of both)"
	}
}

const stateVersion = 1

// NewState begins an import.
func NewState(to Target) State {
	return State{Version: stateVersion, ImportID: rand.Text(), Target: to, Sum: emptySum()}
}

// Continue returns the progress from which an import goes on. That of another project begins again, and notice is the
// reason.
func (s State) Continue(path string, to Target) (state State, notice string) {
	if s.Target.is(to) {
		s.Server = to.Server
		if s.Refused == 0 {
			return s, ""
		}
		state = NewState(to)
		state.ImportID = s.ImportID
		return state, fmt.Sprintf("an earlier run left out data points that the service refused (%d): everything is sent "+
			"again, and what is known is found unchanged", s.Refused)
	}
	state = NewState(to)
	if s.Project == "" {
		state.ImportID = s.ImportID // perhaps the same project: the same batches have the same keys
	}
	return state, s.restart(path, to)
}

func emptySum() string { return newLines(bytes.NewReader(nil)).sum() }

// LoadState reads a progress file. ok is false without one.
func LoadState(path string) (state State, ok bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, false, nil
	}
	if err != nil {
		return State{}, false, fmt.Errorf("read progress file: %w", err)
	}
	if err := json.Unmarshal(text, &state); err != nil || state.Version != stateVersion || state.ImportID == "" {
		return State{}, false, fmt.Errorf("%s is not a progress file of an import: remove it to send everything again", path)
	}
	return state, true, nil
}

// Save writes a progress file atomically.
func (s State) Save(path string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode progress: %w", err)
	}
	return fsx.WriteFile(path, append(text, '\n'))
}
