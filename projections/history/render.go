package history

import (
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// shownRow is a row with its events, nil for one that left the log or was never there.
type shownRow struct {
	*entryRow
	entry          Entry
	record, former *record
	// isLong reports that the values are not decoded for this page.
	isLong bool
	// texts are values that blobs hold, by path: of the event, and of the one before.
	texts, formerTexts map[string]any
}

// isErased reports whether the event left the log.
func (s shownRow) isErased() bool { return s.record == nil }

// hasFormer reports whether the values before are known, or were erased: then former is nil.
func (s shownRow) hasFormer() bool { return s.FormerStream != "" }

// payload is what the sentence is made of: of an event that left the log, what the row has.
func (s shownRow) payload() any {
	if s.record != nil && s.record.payload != nil {
		return s.record.payload
	}
	known := map[string]any{}
	if s.Project != uuid.Nil {
		known["projectId"] = s.Project.String()
	}
	return known
}

// render makes what is shown. Names are found for all rows at once: it is made twice, at first for the ids.
func (q Reader) render(ctx context.Context, v Viewer, rows []shownRow) ([]Event, error) {
	n := &namer{hides: v.HidesTexts, asked: map[string]map[string]struct{}{}}
	draw := func() []Event {
		events := make([]Event, len(rows))
		for i, r := range rows {
			events[i] = n.event(r)
		}
		return events
	}
	draw()
	if err := q.find(ctx, n); err != nil {
		return nil, err
	}
	return draw(), nil
}

func (n *namer) event(r shownRow) Event {
	e := Event{
		ID: r.ID, At: r.At, Kind: KindOf(r.Type), By: n.principal(r.Principal), IsErased: r.isErased(), Changes: []Change{},
	}
	if r.Project != uuid.Nil {
		e.Project = n.name(formProject, r.Project.String())
	}
	if r.record != nil {
		e.RequestID, e.Reason = r.record.meta.RequestID, r.record.meta.Reason
		e.IsLogged = e.HasRequest() && slices.Contains([]string{formKey, "management-key", formWebhook, OfAgent}, e.By.Kind)
	}
	payload := r.payload()
	for _, p := range partsOf(r.entry.textFor(payload)) {
		e.Pieces = append(e.Pieces, n.piece(r, p, payload))
	}
	var text strings.Builder
	for i, p := range e.Pieces {
		if i == 0 && !p.isName {
			e.Pieces[0].Text = capital(p.Text)
		}
		text.WriteString(e.Pieces[i].Text)
	}
	e.Text = text.String()
	for about := range strings.FieldsSeq(r.entry.About) {
		kind, path, _ := strings.Cut(about, "=")
		if id := r.idAt(path, payload); id != "" {
			e.Things = append(e.Things, Thing{Kind: kind, ID: id, Name: n.name(kind, id)})
		}
	}
	if !r.isErased() && !r.isLong && (!n.hides || !r.entry.Texts) {
		e.Changes = append(e.Changes, n.changes(r)...)
	}
	return e
}

// idAt is the id at a path. Of an event that left the log, the row may not have its stream, and so no id of that.
func (s shownRow) idAt(path string, payload any) string {
	if path == streamID && s.Stream == "" {
		return ""
	}
	return idAt(s.Stream, payload, path)
}

// piece is a part of the sentence of an event.
func (n *namer) piece(r shownRow, p part, payload any) Piece {
	switch {
	case p.path == "":
		return Piece{Text: p.text}
	case p.path == by:
		who := n.principal(r.Principal)
		return Piece{Text: who.Name, Kind: who.Kind, ID: who.ID, isName: who.isName}
	case isOfThing(p.form):
		id := r.idAt(p.path, payload)
		return Piece{Text: n.name(p.form, id), Kind: p.form, ID: id, isName: true}
	case r.record == nil || r.isLong || n.hides && r.entry.Texts:
		return Piece{Text: "…"}
	default:
		return Piece{Text: cut(n.text(p.form, valueAt(payload, p.path)), maxWord)}
	}
}

// isOfThing reports whether a form names the thing of an id.
func isOfThing(form string) bool {
	switch form {
	case formPerson, formKey, formProject, formWebhook, formAudience, formDataPoint:
		return true
	}
	return false
}

// maxWord is how long a value in a sentence is, in characters.
const maxWord = 120

func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most]) + "…"
}

func capital(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}
