package e2e

import (
	"net/http"
	"slices"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/runtest"
)

// resolve finds out what became of the call that a kill cut off: it is wholly there, or wholly not.
// Then it is made again, where it has a key always, else half of the times: a client that got no
// answer does that.
func (w *worker) resolve() {
	ctx := w.t.Context()
	if p := w.openShared; p != nil {
		open := w.openCall
		runtest.Await(w.t, "a call is answered when it is made again: "+p.String(), func() bool { return w.callShared(ctx, p, open) })
	}
	c := w.open
	if w.open = nil; c == nil {
		return
	}
	landed, known := w.landed(c)
	switch {
	case w.t.Failed():
	case c.verb == deletion && known && landed:
		w.m.note(c, "it had taken effect")
		w.m.applyDeletion(c)
	case c.verb == deletion && known:
		w.m.note(c, "it had not taken effect")
	case c.verb == deletion:
		var err error
		runtest.Await(w.t, "a deletion is not refused for load", func() bool { err = w.deletion(ctx, c); return !isBusy(err) })
		w.m.note(c, "made again: %v", err)
		if err != nil && !isRefused(err, http.StatusNotFound, fault.CodeDataPointNotFound) {
			w.errorf(c, "a deletion is refused when it is made again")
		}
		w.m.applyDeletion(c)
	case c.verb == wipe && known && !landed && w.rng.IntN(2) == 0:
		w.m.note(c, "it had not taken effect")
	case c.verb == wipe:
		var err error
		runtest.Await(w.t, "the deletion of a send is not refused for load", func() bool {
			err = w.c.DeleteIngestion(ctx, c.target.id)
			return !isBusy(err)
		})
		w.m.note(c, "landed: %v, %v; made again: %v", known, landed, err)
		if err != nil {
			w.errorf(c, "the deletion of a send is refused when it is made again")
		}
		w.m.applyWipe(c.target)
	case c.key == "" && known && !landed && w.rng.IntN(2) == 0:
		w.m.note(c, "it had not taken effect")
	case known && landed && c.key == "":
		w.m.note(c, "it had taken effect")
		w.m.applySend(c, "")
	default:
		w.again(c, known && landed)
	}
}

// again makes a send once more that was cut off.
func (w *worker) again(c *call, landed bool) {
	changes := make([]bool, len(c.items))
	for i := range c.items {
		_, changes[i] = after(c.items[i])
	}
	for try := range 2 {
		id, items, err := w.send(w.t.Context(), c)
		w.m.note(c, "had taken effect: %v, made again: %s %v", landed, id, err)
		if err != nil {
			w.errorf(c, "a send that was cut off is refused when it is made again")
			return
		}
		if c.key == "" { // nothing could be seen of it, so the answer may be either
			unchanged := make([]bool, len(c.items))
			for i, r := range items {
				unchanged[i] = r.Unchanged != nil && *r.Unchanged
			}
			if slices.Equal(unchanged, changes) && slices.Contains(changes, true) && !slices.Contains(changes, false) {
				w.m.applySend(c, "") // it took effect under an id that no answer carried
				return
			}
			w.checkItems(c, items, changes)
			w.sends = append(w.sends, w.m.applySend(c, id))
			return
		}
		w.checkItems(c, items, changes)
		if try == 0 {
			w.sends = append(w.sends, w.m.applySend(c, id))
		} else if c.send.id != id {
			w.errorf(c, "one key gives the sends %s and %s", c.send.id, id)
		}
	}
}

// landed looks at every point of a call that was cut off. known is false where nothing can be seen
// of it either way.
func (w *worker) landed(c *call) (landed, known bool) {
	items := c.items
	if c.verb == wipe {
		items = c.target.call.items
	}
	yes, no := 0, 0
	for _, i := range items {
		before, then := current(i.point), current(i.point)
		switch {
		case c.verb == deletion:
			then = nil
		case c.verb == wipe && i.point.now() != nil && i.point.now().send == c.target:
			then = nil
		case c.verb != wipe:
			f, _ := after(i)
			then = &f
		}
		got, err := observe(w.t.Context(), w.c, i.point.id, i.point.word)
		if err != nil {
			w.errorf(c, "recall: %v", err)
			return false, false
		}
		is, was := shows(got, then), shows(got, before)
		switch {
		case is && !was:
			yes++
		case was && !is:
			no++
		case !is && !was:
			w.errorf(c, "%s stood as %v, was to become %v, and recall shows %s\n%s", i.point.id, before, then, shownAs(got),
				w.m.about(i.point))
			return false, false
		}
	}
	if yes > 0 && no > 0 {
		w.errorf(c, "half of the call took effect: %d of its points show it, %d do not", yes, no)
	}
	return yes > 0, yes+no > 0
}
