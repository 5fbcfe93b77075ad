package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/fault"
)

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
