package event

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

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
