package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/ingest"
	audiences "github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
)

// maxNotes is how many notes live at once: one page must hold them all.
const maxNotes = 24

// someTime is one of a few days in the past, so that some things happen at once.
func (w *walk) someTime() time.Time {
	return time.Date(2026, 3, 1+w.rng.IntN(20), 12, 0, 0, 0, time.UTC)
}

func (w *walk) someText() string {
	text := "Zebra note."
	for range 1 + w.rng.IntN(2) {
		text += fmt.Sprintf(" %s's favourite %s is %s.", pick(w, []string{"Dora", "Emil"}),
			pick(w, []string{"editor", "city"}), pick(w, []string{"Helix", "Vim", "Oslo", "Rome", "Bern"}))
	}
	return text
}

// someNote is one that lives, nil for none.
func (w *walk) someNote() *note {
	if len(w.notes) == 0 {
		return nil
	}
	return w.notes[pick(w, slices.Sorted(maps.Keys(w.notes)))]
}

// someSlug names an audience, or none, or what is project-visible.
func (w *walk) someSlug() *string {
	switch slug := pick(w, append(walkSlugs, "project", "")); {
	case slug == "":
		return nil
	default:
		return &slug
	}
}

// refused reports whether a send is refused for its audience, and holds the answer against that.
func (w *walk) refused(slug *string, err error) bool {
	w.t.Helper()
	unknown := slug != nil && *slug != audiences.Default && w.audiences[*slug] == nil
	if f, is := errors.AsType[*fault.Error](err); unknown != (is && f.Code == fault.CodeAudienceUnknown) {
		w.fail("audience %v: %v", slug, err)
	}
	if !unknown {
		w.must(err)
	}
	return unknown
}

// accept notes what a send leaves, and whether it brought nothing new.
func (w *walk) accept(in ingest.DataPoint, send uuid.UUID, ordinal int) (unchanged bool) {
	if in.Identity != nil {
		w.appear(*in.Identity)
	}
	var to *audienceModel
	if in.Audience != nil && *in.Audience != audiences.Default {
		to = w.audiences[*in.Audience]
	}
	p := w.notes[*in.ID]
	fresh := p == nil
	if fresh {
		p = &note{id: *in.ID, fields: fields{occurredAt: w.call.ReceivedAt}, had: map[int]*audienceModel{}}
		w.notes[p.id] = p
	}
	before := *p
	p.fields, p.audience = p.with(in.Content, value(in.Label), in.Metadata, value(in.Timestamp)), to
	// An answer to a move promises that recall follows.
	w.prompt = w.prompt || !fresh && p.audience != before.audience
	if !fresh && p.equal(before.fields) {
		p.had[p.revision] = to
		return true
	}
	p.revision, p.send, p.ordinal, p.author = before.revision+1, send, ordinal, ""
	p.had[p.revision] = to
	if in.Identity != nil {
		p.author = *in.Identity
	}
	return false
}

// value is what a pointer points to, and zero for nil.
func value[V any](p *V) (v V) {
	if p != nil {
		v = *p
	}
	return v
}

// send sends one data point, and holds the receipt against the model.
func (w *walk) send(in ingest.DataPoint) {
	w.t.Helper()
	r, err := w.write.Ingest(w.t.Context(), w.call, in, "")
	if w.refused(in.Audience, err) {
		w.did("send %s to an audience that there is not", *in.ID)
		return
	}
	if unchanged := w.accept(in, r.IngestionID, 0); unchanged != (r.Unchanged != nil && *r.Unchanged) {
		w.fail("send of %s: %+v, want unchanged %t", *in.ID, r, unchanged)
	}
	w.did("send %s %s: %q", *in.ID, said(in), in.Content)
}

func said(in ingest.DataPoint) string {
	text := ""
	if in.Audience != nil {
		text += " to " + *in.Audience
	}
	if in.Identity != nil {
		text += " by " + *in.Identity
	}
	if in.Timestamp != nil {
		text += in.Timestamp.Format(" of 2 Jan")
	}
	return text
}

// newNote is a data point under an id of its own.
func (w *walk) newNote() ingest.DataPoint {
	w.serial++
	id, at := fmt.Sprintf("note/%d", w.serial), w.someTime()
	in := ingest.DataPoint{ID: &id, Content: w.someText(), Timestamp: &at, Audience: w.someSlug()}
	if w.rng.IntN(3) == 0 {
		author := w.someone()
		in.Identity = &author
	}
	if w.rng.IntN(3) == 0 {
		label := pick(w, []string{"Zebra call", "Zebra mail"})
		in.Label = &label
	}
	return in
}

func (w *walk) sendNew() bool {
	if len(w.notes) >= maxNotes {
		return false
	}
	w.send(w.newNote())
	return true
}

func (w *walk) sendAgain() bool {
	p := w.someNote()
	if p == nil {
		return false
	}
	in := w.newNote()
	in.ID = &p.id
	w.send(in)
	return true
}

// move sends a note again as it is, to another audience or to the same.
func (w *walk) move() bool {
	p := w.someNote()
	if p == nil {
		return false
	}
	w.send(ingest.DataPoint{ID: &p.id, Content: p.content, Audience: w.someSlug()})
	return true
}

// redact sends a note again without what was read in it, to everybody. Nothing is derived from the
// new text: derivation is off, has only begun, or was rejected.
func (w *walk) redact() bool {
	p := w.someNote()
	if p == nil || p.reading == nil || p.reading.revision != p.revision || p.audience == nil {
		return false
	}
	w.serial++
	w.send(ingest.DataPoint{ID: &p.id, Content: fmt.Sprintf("Zebra note %d, redacted.", w.serial)})
	switch w.rng.IntN(3) {
	case 0:
		w.attempt(p, false)
		w.did("begin to derive %s", p.id)
	case 1:
		w.attempt(p, true)
		w.did("reject %s", p.id)
	}
	return true
}

func (w *walk) sendBatch() bool {
	if len(w.notes)+3 > maxNotes {
		return false
	}
	var items []ingest.DataPoint
	for range 2 {
		items = append(items, w.newNote())
	}
	if p := w.someNote(); p != nil {
		items = append(items, ingest.DataPoint{ID: &p.id, Content: p.content, Audience: w.someSlug()})
	}
	var unknown *string
	for _, in := range items {
		if in.Audience != nil && *in.Audience != audiences.Default && w.audiences[*in.Audience] == nil {
			unknown = in.Audience
		}
	}
	r, err := w.write.IngestBatch(w.t.Context(), w.call, items, "")
	if w.refused(unknown, err) {
		w.did("batch of %d to an audience that there is not", len(items))
		return true
	}
	for i, in := range items {
		if unchanged := w.accept(in, r.IngestionID, i); unchanged != (r.Items[i].Unchanged != nil) {
			w.fail("item %d: %+v, want unchanged %t", i, r.Items[i], unchanged)
		}
		w.did("in a batch %s%s: %q", *in.ID, said(in), in.Content)
	}
	return true
}

func (w *walk) deleteNote() bool {
	p := w.someNote()
	if p == nil {
		return false
	}
	_, err := w.write.DeleteDataPoints(w.t.Context(), w.call, []string{p.id})
	w.must(err)
	delete(w.notes, p.id)
	w.did("delete %s", p.id)
	w.prompt = true
	return true
}

// deriveSome derives memory from a few notes that wait for it.
func (w *walk) deriveSome() bool {
	done := false
	for _, id := range slices.Sorted(maps.Keys(w.notes)) {
		p := w.notes[id]
		if p.reading != nil && p.reading.revision == p.revision || w.rng.IntN(4) == 0 {
			continue
		}
		w.derive(p)
		w.did("derive %s: %d lines", p.id, len(p.reading.lines))
		done = true
	}
	return done
}

// drawer draws changes of the directory. The last of the names is never known.
func (w *walk) drawer() drawer {
	d := drawer{rng: w.rng, names: walkNames[:len(walkNames)-1], slugs: walkSlugs}
	d.traits = func() map[string]string { // often none
		traits := map[string]string{}
		for _, key := range []string{"team", "role"} {
			if w.rng.IntN(3) > 0 {
				traits[key] = pick(w, []string{"blue", "red", "Blue"})
			}
		}
		return traits
	}
	d.patch = func() map[string]*string {
		if w.rng.IntN(2) == 0 {
			return map[string]*string{pick(w, []string{"team", "role"}): nil}
		}
		return map[string]*string{"team": new(pick(w, []string{"blue", "red"}))}
	}
	d.rule = w.someRule
	return d
}

func (w *walk) someRule() *audiences.Rule {
	rule := &audiences.Rule{Match: pick(w, []audiences.Match{audiences.MatchAll, audiences.MatchAny})}
	for range 1 + w.rng.IntN(2) {
		condition := audiences.Condition{
			Trait:    pick(w, []string{"team", "role"}),
			Operator: pick(w, audiences.Operators()),
			Values:   []string{},
		}
		switch condition.Operator {
		case audiences.Is, audiences.IsNot:
			condition.Values = []string{pick(w, []string{"blue", "red"})}
		case audiences.IsOneOf, audiences.IsNotOneOf:
			condition.Values = []string{"red", pick(w, []string{"blue", "green"})}
		}
		rule.Conditions = append(rule.Conditions, condition)
	}
	return rule
}

// change makes a change, and holds its answer against the model.
func (w *walk) change(c change) bool {
	w.t.Helper()
	body := ""
	if c.body != nil {
		text, err := json.Marshal(c.body)
		w.must(err)
		body = string(text)
	}
	w.did("%s %s %s", c.method, c.path, body)
	r := w.api.Call(c.method, auth.Prefix+c.path, apitest.ProjectKey, body)
	if r.Status != c.want || !strings.Contains(r.Body, c.answer) {
		w.fail("answered %d %s, want %d with %s", r.Status, r.Body, c.want, c.answer)
	}
	before := w.belonging()
	c.apply(w.peopleModel)
	if c.method == http.MethodDelete && strings.HasPrefix(c.path, "/identities") && w.belonging() < before {
		w.coverage["after a removal"]++
	}
	w.prompt = true
	return true
}

// belonging counts the members of fixed audiences.
func (w *walk) belonging() (n int) {
	for _, a := range w.audiences {
		n += len(a.members)
	}
	return n
}
