// Package event defines a stored event: a past-tense struct with a stored name, and its metadata.
package event

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // as version 5 of a UUID wants
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Event is a fact. It is a plain struct of the package of its aggregate, it is encoded as JSON, and
// its EventType is the name it is stored under, "aggregate.verb-phrase.vN", which never changes.
//
// A name may get optional fields later, whose absence means what the event meant before. Each has the
// tag since:"N" with the step that brought it, from 2, and is left out of the payload if it is not set.
type Event interface {
	EventType() string
}

// ProjectOf returns the project that an event belongs to: its field ProjectID, also one of an embedded struct. It is
// zero for an event of an organization or of the whole log.
func ProjectOf(e Event) uuid.UUID {
	of := reflect.Indirect(reflect.ValueOf(e))
	if of.Kind() != reflect.Struct {
		return uuid.Nil
	}
	field := of.FieldByName("ProjectID")
	if !field.IsValid() {
		return uuid.Nil
	}
	return field.Interface().(uuid.UUID) // a test of the catalogue holds the type
}

// Meta is stored with every event: its principal, request and command, its cause and its time. In the
// store a salt follows it (WithSalt), which differs for each event.
type Meta struct {
	// RequestID is the X-Request-Id of the request that caused the event, or zero for background work.
	RequestID uuid.UUID `json:"requestId,omitzero"`
	// CommandID is the id of the command; event ids derive from it (see ID).
	CommandID uuid.UUID `json:"commandId"`
	// Principal names the caller: "key:<id>", "management-key:<id>", "webhook:<id>", "person:<id>",
	// "agent:<id>", "pipeline", "finisher" or "operator:<name>", the person at the machine of the service.
	Principal string `json:"principal,omitempty"`
	// Reason is why an operator did it, as that person wrote it, "" for none.
	Reason string `json:"reason,omitempty"`
	// CausationID is the id of the event that this one answers to, zero when a request caused it.
	CausationID uuid.UUID `json:"$causationId,omitzero"`
	// CorrelationID is shared by everything that one request set off.
	CorrelationID uuid.UUID `json:"$correlationId,omitzero"`
	// Schema is the step of the event: the least at which it has every field that this event sets.
	Schema int `json:"schema"`
	// At is the time of the command, in UTC, at microsecond precision: when the call was received, or
	// the clock of the background work. The store's own clock counts for nothing.
	At time.Time `json:"at"`
}

// FirstStep is the step of an event that sets no field which its name got later.
const FirstStep = 1

// NewMeta returns the metadata of a new command of a principal that no call caused.
func NewMeta(principal string, at time.Time) Meta {
	return Meta{CommandID: uuid.New(), Principal: principal, At: at}
}

// Of returns the metadata of a command about an operation: its send, deletion or identity.
func (m Meta) Of(operation uuid.UUID) Meta {
	m.CorrelationID = operation
	return m
}

// ID derives the id of the n-th event of a command, so that a repeated append is recognised by the
// store instead of being stored twice.
func ID(command uuid.UUID, n int) uuid.UUID {
	var seed [8]byte
	for i := range seed {
		seed[i] = byte(n >> (8 * i))
	}
	return uuid.NewSHA1(command, seed[:])
}

// Derived is the id of version 5 whose name is a kind and what follows it. It is uuid.NewSHA1 without memory of the
// heap, since a recall derives hundreds.
func Derived(space uuid.UUID, kind, name string) (id uuid.UUID) {
	var room [256]byte
	sum := sha1.Sum(append(append(append(room[:0], space[:]...), kind...), name...)) //nolint:gosec // as version 5 wants
	copy(id[:], sum[:])
	id[6], id[8] = id[6]&0x0f|0x50, id[8]&0x3f|0x80
	return id
}

// Steps are the optional fields that an event got after its name, of one type of event. The zero value is that of an
// event without any.
type Steps struct {
	fields []laterField
	last   int
}

// laterField is a field by its index in the struct, with the step that brought it.
type laterField struct{ index, step int }

// StepsOf returns the steps of the type of an event. It refuses a tag that is no step, a step that no field brought, a
// field that the payload would hold although it is not set, and one of a part of the event.
func StepsOf(e Event) (Steps, error) {
	of := reflect.TypeOf(e)
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	s, brought := Steps{last: FirstStep}, map[int]bool{}
	for i := range of.NumField() {
		f := of.Field(i)
		if path := taggedWithin(f.Type, f.Name); path != "" {
			return Steps{}, fmt.Errorf("%s: field %s is of a part of the event, which gets none", e.EventType(), path)
		}
		tag, later := f.Tag.Lookup(sinceTag)
		if !later {
			continue
		}
		step, err := strconv.Atoi(tag)
		if err != nil || step <= FirstStep {
			return Steps{}, fmt.Errorf("%s: field %s is since %q: want a step from %d", e.EventType(), f.Name, tag, FirstStep+1)
		}
		if _, options, _ := strings.Cut(f.Tag.Get("json"), ","); options != "omitempty" && options != "omitzero" {
			return Steps{}, fmt.Errorf("%s: field %s is stored although it is not set", e.EventType(), f.Name)
		}
		s.fields, brought[step] = append(s.fields, laterField{i, step}), true
		s.last = max(s.last, step)
	}
	for step := FirstStep + 1; step < s.last; step++ {
		if !brought[step] {
			return Steps{}, fmt.Errorf("%s: no field is since %d", e.EventType(), step)
		}
	}
	return s, nil
}

const sinceTag = "since"

// taggedWithin returns the path of a field with a step in a part of an event, "" for none.
func taggedWithin(of reflect.Type, path string) string {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return taggedWithin(of.Elem(), path)
	case reflect.Struct:
		for i := range of.NumField() {
			f := of.Field(i)
			if _, tagged := f.Tag.Lookup(sinceTag); tagged {
				return path + "." + f.Name
			}
			if f.IsExported() {
				if within := taggedWithin(f.Type, path+"."+f.Name); within != "" {
					return within
				}
			}
		}
	}
	return ""
}

// Last is the newest step that this program knows.
func (s Steps) Last() int { return max(s.last, FirstStep) }

// Of returns the step of an event of the type: the least that has all that it sets.
func (s Steps) Of(e Event) int {
	step := FirstStep
	if len(s.fields) == 0 {
		return step
	}
	v := reflect.Indirect(reflect.ValueOf(e))
	for _, f := range s.fields {
		if !v.Field(f.index).IsZero() {
			step = max(step, f.step)
		}
	}
	return step
}

// SaltSize is the size of a salt in bytes.
const SaltSize = 16

// The salt is the last member of the metadata, so that the metadata without it is what was stored
// without these bytes: `,"salt":"<base64>"` before the closing brace.
const (
	saltBegins = `,"salt":"`
	saltEnds   = `"}`
)

// saltText is the encoding of a salt. Strict: each salt has one text.
var saltText = base64.StdEncoding.Strict()

// errNoSalt is returned for metadata that does not end with a salt.
var errNoSalt = errors.New("the metadata does not end with a salt")

// WithSalt adds a salt to encoded metadata, which must be a JSON object with a member.
func WithSalt(meta []byte, salt [SaltSize]byte) []byte {
	body := bytes.TrimSuffix(meta, []byte("}"))
	salted := make([]byte, 0, len(body)+len(saltBegins)+saltText.EncodedLen(SaltSize)+len(saltEnds))
	salted = append(append(salted, body...), saltBegins...)
	return append(saltText.AppendEncode(salted, salt[:]), saltEnds...)
}

// SplitSalt returns metadata as it is stored but without the salt, and the salt. It undoes WithSalt,
// to the byte: no two pairs of metadata and salt are stored as the same bytes. It fails if meta is
// not a JSON object, or does not end with a salt.
func SplitSalt(meta []byte) (rest []byte, salt [SaltSize]byte, err error) {
	at := len(meta) - len(saltBegins) - saltText.EncodedLen(SaltSize) - len(saltEnds)
	if at <= 0 || !json.Valid(meta) || meta[0] != '{' {
		return nil, salt, errNoSalt
	}
	text, begins := bytes.CutPrefix(meta[at:], []byte(saltBegins))
	text, ends := bytes.CutSuffix(text, []byte(saltEnds))
	if !begins || !ends {
		return nil, salt, errNoSalt
	}
	decoded, err := saltText.DecodeString(string(text))
	if err != nil || len(decoded) != SaltSize {
		return nil, salt, errNoSalt
	}
	return append(bytes.Clone(meta[:at]), '}'), [SaltSize]byte(decoded), nil
}
