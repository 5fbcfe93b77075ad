package history

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/webhook"
)

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
