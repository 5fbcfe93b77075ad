// Package history is the projection of History: which events of the log people look for, what each is about, who
// caused it, and which event had the value before. Its rows have no text and no value; Reader reads these from the
// log when a page is shown, so that what left the log is in no history.
//
// The table entries has one Entry for each kind of event of the catalogue, and a test fails for a kind without one. A
// new kind adds its entry to entries.go:
//
//   - Text is its sentence. {by} is who caused it, {path|form} the value at a path of the payload in one of the forms
//     below: "{by} gave {memberId|person} {access} in {projectId|project}". Cases are tried before it.
//   - or Elsewhere is the reason why it has none, such as "stays in Requests". Such a kind has no row.
//   - About names the things whose own page shows it, as "kind=path": "member=memberId". The project of an event needs
//     no entry: it is the field projectId. The path @ is the id in the name of the stream.
//   - Setting names what it sets, and Values the paths of the values: they are shown before and after. Of two events
//     of one setting the second has no row if all values are the same.
//   - Named is the path of the name of the thing, if the event gives it one that stays when the thing is removed.
//   - Needs is who sees the thing itself, and so its history. Texts marks values that are text of customers.
//   - Hidden lists fields of the payload that nobody is shown: hashes and secrets.
//
// The golden payload of a kind must have each path that its entry names. A kind of a category that the projection
// does not have yet also adds that to Categories, and raises the version.
package history

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
)

// Entry is what History knows of one kind of event. It has a Text, or Elsewhere.
type Entry struct {
	Text  string
	Cases []Case
	// Elsewhere is why the kind has no row.
	Elsewhere string
	// About are the things that the event is about: "kind=path", separated by blanks.
	About string
	// Setting is what the event sets, "" for nothing: a name, and the paths of ids that tell it from all others of
	// the log, as "role organizationId memberId".
	Setting string
	// Values are the values that it sets: "path|form", separated by blanks.
	Values string
	// Named is the path of the name that the first thing of About has from now on. It is no text of a customer.
	Named string
	Needs Needs
	// Texts reports that the values are text of customers.
	Texts bool
	// IsOfThing keeps the event out of the history of the organization and of the project: there are many of them.
	IsOfThing bool
	// IsOfPeople leaves out what programs do: that stays in Data points and Requests.
	IsOfPeople bool
	// Hidden are fields of the payload that are not shown, separated by blanks.
	Hidden string
}

// Case is the sentence of an event with a value at a path. Is "" means that there is no value.
type Case struct{ Path, Is, Text string }

// Needs is who may see an event: who may see the thing that it is about.
type Needs int

// The needs, from least to most. Those up to Write are of the project of the event.
const (
	Read Needs = iota
	Write
	Manage
)

// entries has what History knows of each kind of event, by the name that it is stored under.
var entries = joined(organizationEntries, projectEntries, directoryEntries, textEntries, internalEntries,
	visitEntries)

func joined(tables ...map[string]Entry) map[string]Entry {
	all := map[string]Entry{}
	for _, table := range tables {
		for name, entry := range table {
			all[name] = entry
		}
	}
	return all
}

// withText are the kinds with a sentence, in order.
var withText = func() (names []string) {
	for name, entry := range entries {
		if entry.Text != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}()

// EntryOf returns the entry of a stored name, and whether it has a sentence.
func EntryOf(name string) (e Entry, has bool) {
	e = entries[name]
	return e, e.Text != ""
}

// KindOf is the name of a kind as people filter by it: the stored name without its version.
func KindOf(name string) string {
	if at := strings.LastIndex(name, ".v"); at > 0 {
		return name[:at]
	}
	return name
}

// The forms of values, besides "", which shows a text as it is.
const (
	// These name the thing of an id.
	formPerson   = "person"
	formKey      = "key"
	formProject  = "project"
	formWebhook  = "webhook"
	formAudience = "audience"
	// formIdentity and formDataPoint name a record and a text by the id in its stream.
	formIdentity  = "identity"
	formDataPoint = "datapoint"
	// formMembers is the members of an audience, by name.
	formMembers = "members"
	formTime    = "time"
	formNumber  = "number"
	formCredits = "credits" // of tenths
	formCount   = "count"   // of the items of a list
	formList    = "list"
	formRule    = "rule"    // of an audience, as a sentence
	formTraits  = "traits"  // of an identity
	formFilters = "filters" // of a webhook
)

// forms are all forms.
var forms = []string{
	"", formPerson, formKey, formProject, formWebhook, formAudience, formIdentity, formDataPoint, formMembers, formTime, formNumber,
	formCredits, formCount, formList, formRule, formTraits, formFilters,
}

// The kinds of things that have a history, as About names them.
const (
	OfMember    = "member"
	OfOffer     = "offer"
	OfGrant     = "grant"
	OfAgent     = "agent"
	OfKey       = "key"
	OfCaps      = "caps"
	OfReads     = "reads"
	OfWebhook   = "webhook"
	OfAudience  = "audience"
	OfIdentity  = "identity"
	OfDataPoint = "datapoint"
	OfSend      = "send"
	OfDeletion  = "deletion"
	OfErasure   = "erasure"
)

// streamID is the path of the id in the name of the stream.
const streamID = "@"

// idAt is the id or name at a path of an event, "" for none.
func idAt(name string, payload any, path string) string {
	if path == streamID {
		return stream.Owner(name).String()
	}
	if id := plain(valueAt(payload, path)); id != uuid.Nil.String() {
		return id
	}
	return ""
}

// blobAt is the reference to the blob that holds the value at a path, nil if the event holds it.
func blobAt(payload any, path string) map[string]any {
	if ref, is := valueAt(payload, path+"Blob").(map[string]any); is {
		return ref
	}
	ref, _ := valueAt(payload, path+".blob").(map[string]any)
	return ref
}

// decode decodes a payload, with its numbers as they are.
func decode(data []byte) (payload any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err = decoder.Decode(&payload)
	return payload, err
}
