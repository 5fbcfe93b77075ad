package history

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/webhook"
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

// Change is a value that an event changed. A list also has what was added and removed: at most MaxItems of each by
// name, and a count of the others.
type Change struct {
	Name    string   `json:"name"`
	Before  string   `json:"before"`
	After   string   `json:"after"`
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// MoreAdded and MoreRemoved count those without a name here.
	MoreAdded   int `json:"moreAdded,omitempty"`
	MoreRemoved int `json:"moreRemoved,omitempty"`
}

// MaxItems is how many members a change names, of those that were added and of those that were removed.
const MaxItems = 50

// IsLong reports whether a page folds the change.
func (c Change) IsLong() bool {
	size := len(c.Before) + len(c.After)
	for _, item := range slices.Concat(c.Added, c.Removed) {
		size += len(item)
	}
	return size > foldedFrom
}

const foldedFrom = 200

// String is the change on one line.
func (c Change) String() string {
	text := c.Name + ": "
	if c.Before != "" {
		text += c.Before + " → "
	}
	text += c.After
	for _, list := range []struct {
		verb  string
		items []string
		more  int
	}{{"added", c.Added, c.MoreAdded}, {"removed", c.Removed, c.MoreRemoved}} {
		if len(list.items) == 0 {
			continue
		}
		text += ", " + list.verb + " " + strings.Join(list.items, ", ")
		if list.more > 0 {
			text += " and " + strconv.Itoa(list.more) + " more"
		}
	}
	return text
}

// What is shown in place of a value.
const (
	none = "none"

	notShown = "long: open the change"
)

// changes are the values that an event changed.
func (n *namer) changes(r shownRow) (changes []Change) {
	for text := range strings.FieldsSeq(r.entry.Values) {
		path, form := pathForm(text)
		before, after := side{}, side{value: r.value(r.record, r.texts, path), isThere: true}
		switch {
		case r.former != nil && r.former.payload != nil:
			before = side{value: r.value(r.former, r.formerTexts, path), isThere: true}
		case r.hasFormer():
			before.isErased = true
		}
		if before.isThere && equal(before.value, after.value) || !r.hasFormer() && isNothing(after.value) {
			continue
		}
		switch form {
		case formMembers:
			changes = append(changes, n.members(before, after))
		case formTraits:
			changes = append(changes, n.traits(before, after)...)
		default:
			c := Change{Name: nameOf(path, r.entry.Setting), After: n.shown(form, after)}
			if r.hasFormer() {
				c.Before = n.shown(form, before)
			}
			changes = append(changes, c)
		}
	}
	return changes
}

// side is a value before or after. It is erased if its event left the log.
type side struct {
	value             any
	isThere, isErased bool
}

// inBlob stands for a value that is not read for this page.
type inBlob string

// value is the value at a path of an event.
func (shownRow) value(of *record, texts map[string]any, path string) any {
	if read, is := texts[path]; is {
		return read
	}
	if ref := blobAt(of.payload, path); ref != nil {
		return inBlob(plain(ref["sha256"]))
	}
	value := valueAt(of.payload, path)
	if object, is := value.(map[string]any); is && strings.HasSuffix(path, "traits") {
		return object["inline"] // identity.Traits
	}
	return value
}

func equal(a, b any) bool {
	if isNothing(a) && isNothing(b) {
		return true
	}
	one, err := json.Marshal(a)
	if err != nil {
		return false
	}
	other, err := json.Marshal(b)
	return err == nil && string(one) == string(other)
}

// isNothing reports whether a value is none: an event leaves it out, or has an empty one.
func isNothing(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == "" || value == nilID
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	default:
		return false
	}
}

const nilID = "00000000-0000-0000-0000-000000000000"

// shown is a side of a change as a text.
func (n *namer) shown(form string, s side) string {
	switch {
	case s.isErased:
		return Erased
	case isNothing(s.value):
		return none
	default:
		return n.text(form, s.value)
	}
}

// text is a value in a form.
func (n *namer) text(form string, value any) string {
	if _, long := value.(inBlob); long {
		return notShown
	}
	switch list, _ := value.([]any); {
	case n.hides && (form == formRule || form == formFilters): // they name values of traits and of events
		return hiddenValue
	case isOfThing(form):
		return n.name(form, plain(value))
	case form == formTime:
		if at, err := time.Parse(time.RFC3339Nano, plain(value)); err == nil {
			return at.UTC().Format("2006-01-02 15:04 UTC")
		}
	case form == formCredits:
		if tenths, err := strconv.ParseInt(plain(value), 10, 64); err == nil {
			return metering.Credits(tenths).String()
		}
	case form == formCount:
		return strconv.Itoa(len(list))
	case form == formList:
		return strings.Join(plains(list), ", ")
	case form == formRule:
		return ruleText(value)
	case form == formFilters:
		return filtersText(value)
	}
	return plain(value)
}

func plains(list []any) []string {
	texts := make([]string, len(list))
	for i, value := range list {
		texts[i] = plain(value)
	}
	return texts
}

// as decodes a value into a type of the domain.
func as[T any](value any) (t T, ok bool) {
	data, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	return t, err == nil
}

// ruleText is the rule of an audience as a sentence.
func ruleText(value any) string {
	rule, ok := as[audience.Rule](value)
	if !ok {
		return plain(value)
	}
	words := map[audience.Operator]string{
		audience.Is: "is", audience.IsNot: "is there, and not", audience.IsOneOf: "is one of",
		audience.IsNotOneOf: "is there, and none of", audience.Exists: "is there", audience.DoesNotExist: "is not there",
	}
	conditions := make([]string, len(rule.Conditions))
	for i, c := range rule.Conditions {
		conditions[i] = strings.TrimSpace(c.Trait + " " + cmp.Or(words[c.Operator], string(c.Operator)) + " " +
			strings.Join(c.Values, ", "))
	}
	joint := " and "
	if rule.Match == audience.MatchAny {
		joint = " or "
	}
	return strings.Join(conditions, joint)
}

// filtersText is the filters of a webhook.
func filtersText(value any) string {
	filters, ok := as[[]webhook.Filter](value)
	if !ok {
		return plain(value)
	}
	texts := make([]string, len(filters))
	for i, f := range filters {
		texts[i] = f.String()
	}
	return strings.Join(texts, "; ")
}

// members is the change of a list of members.
func (n *namer) members(before, after side) Change {
	c := Change{Name: "members", Before: membersText(before), After: membersText(after)}
	was, is := idsOf(before.value), idsOf(after.value)
	if before.isErased || isUnread(before.value) || isUnread(after.value) {
		return c
	}
	c.Added, c.MoreAdded = n.identities(without(is, was))
	c.Removed, c.MoreRemoved = n.identities(without(was, is))
	return c
}

func isUnread(value any) bool { _, is := value.(inBlob); return is }

func membersText(s side) string {
	switch {
	case s.isErased:
		return Erased
	case isUnread(s.value):
		return notShown
	case isNothing(s.value):
		return none
	default:
		return strconv.Itoa(len(idsOf(s.value)))
	}
}

func idsOf(value any) []string {
	list, _ := value.([]any)
	return plains(list)
}

// without are the ids of a list that another does not have.
func without(ids, others []string) (left []string) {
	known := make(map[string]struct{}, len(others))
	for _, id := range others {
		known[id] = struct{}{}
	}
	for _, id := range ids {
		if _, is := known[id]; !is {
			left = append(left, id)
		}
	}
	return left
}

func (n *namer) identities(ids []string) (names []string, more int) {
	for i, id := range ids {
		if i == MaxItems {
			return names, len(ids) - MaxItems
		}
		names = append(names, n.name(formIdentity, id))
	}
	return names, 0
}

// traits are the changes of single traits of an identity.
func (n *namer) traits(before, after side) (changes []Change) {
	if isUnread(before.value) || isUnread(after.value) || before.isErased {
		return []Change{{Name: "traits", Before: n.shown("", before), After: traitsText(after)}}
	}
	was, _ := before.value.(map[string]any)
	is, _ := after.value.(map[string]any)
	all := map[string]any{}
	maps.Copy(all, was)
	maps.Copy(all, is)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !equal(was[key], is[key]) {
			c := Change{Name: "trait " + key, After: cmp.Or(plain(is[key]), none)}
			if before.isThere {
				c.Before = cmp.Or(plain(was[key]), none)
			}
			changes = append(changes, c)
		}
	}
	return changes
}

func traitsText(s side) string {
	object, is := s.value.(map[string]any)
	if !is {
		return notShown
	}
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(object)) {
		texts = append(texts, key+": "+plain(object[key]))
	}
	return cmp.Or(strings.Join(texts, "; "), none)
}

// nameOf is what a value at a path is called: "settings.contentPath" is "content path".
func nameOf(path, setting string) string {
	name := strings.TrimSuffix(path[strings.LastIndex(path, ".")+1:], "Tenths")
	if name == "tenths" {
		name, _, _ = strings.Cut(setting, " ")
		return strings.ReplaceAll(name, "-", " ")
	}
	var words strings.Builder
	for _, c := range strings.TrimSuffix(name, "Id") {
		if unicode.IsUpper(c) {
			words.WriteByte(' ')
		}
		words.WriteRune(unicode.ToLower(c))
	}
	return words.String()
}

// part is a piece of a sentence: a text, or the value at a path in a form.
type part struct{ text, path, form string }

// by is the path of who caused an event.
const by = "by"

// partsOf cuts a sentence at its values.
func partsOf(text string) (parts []part) {
	for text != "" {
		before, rest, found := strings.Cut(text, "{")
		if before != "" {
			parts = append(parts, part{text: before})
		}
		if !found {
			return parts
		}
		value, after, _ := strings.Cut(rest, "}")
		path, form := pathForm(value)
		parts = append(parts, part{path: path, form: form})
		text = after
	}
	return parts
}

// textFor is the sentence of an event by its payload.
func (e Entry) textFor(payload any) string {
	for _, c := range e.Cases {
		if plain(valueAt(payload, c.Path)) == c.Is {
			return c.Text
		}
	}
	return e.Text
}

// pathForm splits "path|form". A value without a form is shown as it is.
func pathForm(text string) (path, form string) {
	path, form, _ = strings.Cut(text, "|")
	return path, form
}

// valueAt returns the value at a path of names, nil for none.
func valueAt(payload any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, _ := payload.(map[string]any)
		payload = object[name]
	}
	return payload
}

// plain is a value as a text: "" for none.
func plain(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case json.Number:
		return value.String()
	case bool:
		return strconv.FormatBool(value)
	default:
		return ""
	}
}
