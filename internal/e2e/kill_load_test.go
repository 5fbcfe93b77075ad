package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/fault"
)

// worker makes calls, one at a time, on points of its own.
type worker struct {
	t      *testing.T
	s      *service
	m      *model
	c      *client.Client
	rng    *rand.Rand
	number int
	off    bool // the pipeline of the service is off
	points []*point
	sends  []*send // that were acknowledged to this worker
	// open is the call that was cut off.
	open       *call
	openShared *shared
	openCall   *sharedCall
}

func (w *worker) errorf(about *call, format string, args ...any) {
	w.t.Helper()
	text := fmt.Sprintf(format, args...)
	if about != nil {
		for _, i := range about.items {
			text += "\n history of " + i.point.id + ":\n" + w.m.about(i.point)
			break
		}
		text += "\n the call:\n" + about.String()
	}
	w.t.Errorf("%s", text)
}

// step makes one call of the mixed load. It is false where the call got no answer.
func (w *worker) step(ctx context.Context) bool {
	switch n := w.rng.IntN(100); {
	case n < 24:
		return w.do(ctx, &call{verb: single, key: w.key(), items: []item{w.fresh()}})
	case n < 34:
		return w.do(ctx, w.batch())
	case n < 40:
		return w.resend(ctx, w.same)
	case n < 53:
		return w.resend(ctx, w.changed)
	case n < 63:
		return w.resend(ctx, w.amended)
	case n < 69:
		return w.delete(ctx, 1)
	case n < 73:
		return w.delete(ctx, 2+w.rng.IntN(8))
	case n < 77:
		return w.wipe(ctx)
	case n < 82:
		return w.retry(ctx)
	case n < 86:
		return w.repeat(ctx)
	case n < 94:
		return w.poll(ctx)
	default:
		return w.sendShared(ctx)
	}
}

func (w *worker) key() string {
	if w.rng.IntN(2) == 0 {
		return ""
	}
	return fmt.Sprintf("key-%d", w.m.next())
}

// fresh is an item about a point that is new.
func (w *worker) fresh() item {
	n := w.m.next()
	p := &point{id: fmt.Sprintf("s-%d", n), word: fmt.Sprintf("p%dx%d", n, w.number), contents: map[string]bool{}}
	w.m.locked(func() { w.m.points = append(w.m.points, p) })
	w.points = append(w.points, p)
	sent := client.DataPoint{ID: p.id, Content: w.content(p.word), Identity: w.author(), Timestamp: w.timestamp()}
	if w.rng.IntN(3) == 0 {
		sent.Label = w.label()
	}
	if w.rng.IntN(3) == 0 {
		sent.Metadata = w.metadata()
	}
	return item{p, sent}
}

func (w *worker) author() string {
	switch w.rng.IntN(6) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("author %d", w.m.next())
	default:
		return "ana"
	}
}

func (w *worker) label() string { return fmt.Sprintf("Call %d", w.rng.IntN(1000)) }

func (w *worker) metadata() json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"room":%d,"team":"platform"}`, w.rng.IntN(1000)))
}

func (w *worker) timestamp() string {
	return time.Date(2026, 1, 1, 0, 0, w.rng.IntN(20_000_000), 0, time.UTC).Format(time.RFC3339)
}

// content is a new text: mostly a line, now and then one that is too long for its event, or one
// that holds nothing.
func (w *worker) content(word string) string {
	n := w.m.next()
	switch w.rng.IntN(30) {
	case 0:
		return fmt.Sprintf("The code word is %s, revision %d. %s", word, n, strings.Repeat("\U0001F300", 70_000))
	case 1:
		return "... !!! ---" + strings.NewReplacer("0", "!.", "1", "!-").Replace(fmt.Sprintf("%b", n))
	default:
		return fmt.Sprintf("My code word is %s. I moved the launch to revision %d. I like tea.", word, n)
	}
}

// existing is a live point of the worker that this call has not got yet, nil for none.
func (w *worker) existing(taken map[*point]bool) *point {
	for range 20 {
		if len(w.points) == 0 {
			return nil
		}
		p := w.points[w.rng.IntN(len(w.points))]
		if p.now() != nil && !taken[p] {
			return p
		}
	}
	return nil
}

func (w *worker) same(p *point) item {
	return item{p, client.DataPoint{ID: p.id, Content: p.now().content, Identity: w.author()}}
}

func (w *worker) changed(p *point) item {
	return item{p, client.DataPoint{ID: p.id, Content: w.content(p.word), Identity: w.author()}}
}

// amended changes everything but the content.
func (w *worker) amended(p *point) item {
	i := w.same(p)
	switch w.rng.IntN(3) {
	case 0:
		i.sent.Label = w.label()
	case 1:
		i.sent.Metadata = w.metadata()
	default:
		i.sent.Timestamp = w.timestamp()
	}
	return i
}

func (w *worker) resend(ctx context.Context, what func(*point) item) bool {
	p := w.existing(nil)
	if p == nil {
		return true
	}
	return w.do(ctx, &call{verb: single, key: w.key(), items: []item{what(p)}})
}

func (w *worker) batch() *call {
	c := &call{verb: batch, key: w.key()}
	size := 2 + w.rng.IntN(20)
	if w.rng.IntN(12) == 0 {
		size = 100
	}
	taken := map[*point]bool{}
	for range size {
		if p := w.existing(taken); p != nil && w.rng.IntN(4) == 0 {
			taken[p] = true
			c.items = append(c.items, []func(*point) item{w.same, w.changed, w.amended}[w.rng.IntN(3)](p))
			continue
		}
		c.items = append(c.items, w.fresh())
	}
	return c
}

// do makes a send or a batch, and holds the answer against what must follow.
func (w *worker) do(ctx context.Context, c *call) bool {
	c.worker = w.number
	changes := make([]bool, len(c.items))
	for i := range c.items {
		_, changes[i] = after(c.items[i])
	}
	w.m.begin(c)
	id, items, err := w.send(ctx, c)
	if w.cutOff(c, err) {
		return false
	}
	if err != nil {
		w.m.finish(c, "%v", err)
		w.errorf(c, "a send is refused")
		return true
	}
	w.m.finish(c, "send %s", id)
	w.checkItems(c, items, changes)
	w.sends = append(w.sends, w.m.applySend(c, id))
	return true
}

// send makes the request of a send. A single send is answered as a batch of one.
func (w *worker) send(ctx context.Context, c *call) (id string, items []client.ItemReceipt, err error) {
	if c.verb == single {
		p := c.items[0].sent
		p.IdempotencyKey = c.key
		r, err := w.c.Ingest(ctx, p)
		if err != nil {
			return "", nil, err
		}
		return r.IngestionID, []client.ItemReceipt{{SourceID: r.SourceID, Status: r.Status, Unchanged: r.Unchanged}}, nil
	}
	batch := client.Batch{IdempotencyKey: c.key}
	for _, it := range c.items {
		batch.Items = append(batch.Items, it.sent)
	}
	r, err := w.c.IngestBatch(ctx, batch)
	if err != nil {
		return "", nil, err
	}
	return r.IngestionID, r.Items, nil
}

func (w *worker) checkItems(c *call, items []client.ItemReceipt, changes []bool) {
	if len(items) != len(c.items) {
		w.errorf(c, "%d items are answered", len(items))
		return
	}
	for i, r := range items {
		unchanged := r.Unchanged != nil && *r.Unchanged
		if r.SourceID != c.items[i].point.id || unchanged == changes[i] || (r.Status == "queued") != changes[i] {
			w.errorf(c, "item %d is answered %+v, and it changes something: %v\n%s", i, r, changes[i],
				w.m.about(c.items[i].point))
		}
	}
}

// cutOff notes a call without an answer, or whose answer is that the outcome is unknown.
func (w *worker) cutOff(c *call, err error) bool {
	if _, refused := errors.AsType[*client.APIError](err); err == nil || refused && !isBusy(err) {
		return false
	}
	w.m.finish(c, "cut off (%v)", err)
	w.open = c
	return true
}

// isBusy reports whether a call was refused for load, so that it can be repeated.
func isBusy(err error) bool {
	refused, ok := errors.AsType[*client.APIError](err)
	return ok && refused.Status == http.StatusServiceUnavailable && refused.Code != fault.CodePipelineDisabled
}

func isRefused(err error, status int, code string) bool {
	refused, ok := errors.AsType[*client.APIError](err)
	return ok && refused.Status == status && refused.Code == code
}

func (w *worker) acknowledged(ok func(*send) bool) *send {
	for range 20 {
		if len(w.sends) == 0 {
			return nil
		}
		if s := w.sends[w.rng.IntN(len(w.sends))]; s.id != "" && ok(s) {
			return s
		}
	}
	return nil
}

// retry puts a send back that may have stopped.
func (w *worker) retry(ctx context.Context) bool {
	s := w.acknowledged(func(s *send) bool { return s.statuses()[0] == "failed" || w.rng.IntN(5) == 0 })
	if s == nil {
		return true
	}
	c := &call{verb: retry, worker: w.number, target: s}
	w.m.begin(c)
	_, err := w.c.RetryIngestion(ctx, s.id)
	if w.cutOff(c, err) {
		w.open = nil // nothing hangs on it
		return false
	}
	w.m.finish(c, "%v", err)
	switch {
	case w.off && isRefused(err, http.StatusServiceUnavailable, fault.CodePipelineDisabled):
	case err == nil && !w.off && slices.Contains(s.statuses(), "failed") && s.holds():
	case isRefused(err, http.StatusConflict, fault.CodeIngestionNotStopped),
		isRefused(err, http.StatusConflict, fault.CodeDataPointDeleted):
	default:
		w.errorf(c, "a retry of a send that can only be %v is answered %v", s.statuses(), err)
	}
	return true
}

// repeat makes a call with a key again, whatever came between: its receipt is the first one, and
// nothing is stored.
func (w *worker) repeat(ctx context.Context) bool {
	s := w.acknowledged(func(s *send) bool { return s.call.key != "" })
	if s == nil {
		return true
	}
	c := &call{verb: repetition, worker: w.number, key: s.call.key, target: s}
	w.m.begin(c)
	id, items, err := w.send(ctx, s.call)
	if w.cutOff(c, err) {
		w.open = nil // it was stored before
		return false
	}
	w.m.finish(c, "%s %v", id, err)
	w.checkRepeated(s, id, items, err)
	return true
}

func (w *worker) checkRepeated(s *send, id string, items []client.ItemReceipt, err error) {
	gone := slices.ContainsFunc(s.call.items, func(i item) bool { return i.point.deleted })
	if gone && isRefused(err, http.StatusConflict, fault.CodeDataPointDeleted) {
		return // a deleted id is refused, also to who sent it once
	}
	if err != nil || id != s.id {
		w.errorf(s.call, "repeated with its key, send %s is answered %s, %v", s.id, id, err)
		return
	}
	changes := make([]bool, len(s.created))
	for i, r := range s.created {
		changes[i] = r != nil
	}
	w.checkItems(s.call, items, changes)
}

// poll reads the status of a send that was acknowledged.
func (w *worker) poll(ctx context.Context) bool {
	s := w.acknowledged(func(*send) bool { return true })
	if s == nil {
		return true
	}
	status, err := w.c.GetIngestion(ctx, s.id)
	if _, refused := errors.AsType[*client.APIError](err); err != nil && !refused {
		return false
	}
	if err == nil && status.Status == "processing" || isBusy(err) {
		return true
	}
	w.checkStatus(s, status, err)
	return true
}

// delete deletes some points, and now and then asks for one too many.
func (w *worker) delete(ctx context.Context, n int) bool {
	c := &call{verb: deletion, worker: w.number, byPath: n == 1 && w.rng.IntN(2) == 0}
	taken := map[*point]bool{}
	for range n {
		if p := w.existing(taken); p != nil && (n == 1 || !p.now().junk()) {
			taken[p] = true
			c.items = append(c.items, item{point: p})
		}
	}
	if len(c.items) == 0 {
		return true
	}
	if n > 1 && w.rng.IntN(4) == 0 {
		return w.deleteTooMuch(ctx, c)
	}
	w.m.begin(c)
	err := w.deletion(ctx, c)
	if w.cutOff(c, err) {
		return false
	}
	w.m.finish(c, "%v", err)
	if err != nil {
		w.errorf(c, "a deletion is refused")
		return true
	}
	w.m.applyDeletion(c)
	return true
}

// deleteTooMuch names an id that is not there, so that nothing is deleted.
func (w *worker) deleteTooMuch(ctx context.Context, c *call) bool {
	c.verb = refusal
	w.m.begin(c)
	_, err := w.c.DeleteDataPoints(ctx, append(idsOf(c), "never-sent"))
	if w.cutOff(c, err) {
		w.open = nil
		return false
	}
	w.m.finish(c, "%v", err)
	if !isRefused(err, http.StatusNotFound, fault.CodeDataPointNotFound) {
		w.errorf(c, "with an id that was never sent: %v", err)
	}
	return true
}

func idsOf(c *call) []string {
	ids := make([]string, len(c.items))
	for i, it := range c.items {
		ids[i] = it.point.id
	}
	return ids
}

// deletion makes the request of a deletion by source ids.
func (w *worker) deletion(ctx context.Context, c *call) error {
	if c.byPath {
		return w.s.deleteByPath(ctx, c.items[0].point.id)
	}
	_, err := w.c.DeleteDataPoints(ctx, idsOf(c))
	return err
}

// deleteByPath is DELETE /api/v1/data-points/{sourceId}, which the client of the command line has no use for.
func (s *service) deleteByPath(ctx context.Context, id string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "http://"+s.addr+"/api/v1/data-points/"+url.PathEscape(id), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.credentials()["ANNALS_PROJECT_KEY"])
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	var envelope struct{ Code string }
	if err := json.NewDecoder(res.Body).Decode(&envelope); err != nil {
		return err
	}
	if res.StatusCode != http.StatusAccepted {
		return &client.APIError{Status: res.StatusCode, Code: envelope.Code}
	}
	return nil
}

// wipe deletes a send.
func (w *worker) wipe(ctx context.Context) bool {
	s := w.acknowledged(func(*send) bool { return true })
	if s == nil {
		return true
	}
	c := &call{verb: wipe, worker: w.number, target: s}
	w.m.begin(c)
	err := w.c.DeleteIngestion(ctx, s.id)
	if w.cutOff(c, err) {
		return false
	}
	if err != nil {
		w.m.finish(c, "%v", err)
		w.errorf(c, "the deletion of a send is refused: %v", err)
		return true
	}
	w.m.finish(c, "204")
	w.m.applyWipe(s)
	return true
}
