package domain_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
)

var update = flag.Bool("update", false,
	"write the golden payloads that are missing; those that are there are never changed")

const golden = "testdata/events"

func goldenPath(name string) string { return filepath.Join(golden, name+".json") }

// TestGoldenPayloads_EveryEventDecodes is the promise to logs that exist: each golden payload
// decodes, and encoding the fact again gives the same payload. A field that was added, renamed or
// dropped fails here: a new shape is a new name.
func TestGoldenPayloads_EveryEventDecodes(t *testing.T) {
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	for _, construct := range domain.Catalog {
		name := construct().EventType()
		t.Run(name, func(t *testing.T) {
			payload, err := os.ReadFile(goldenPath(name))
			if os.IsNotExist(err) && *update {
				payload = writeGolden(t, codec, construct())
			} else if err != nil {
				t.Fatalf("%v (go test ./domain -update writes what is missing)", err)
			}
			fact, err := codec.Decode(eventstore.Recorded{Type: name, Data: payload})
			if err != nil {
				t.Fatal(err)
			}
			if path := zeroField(reflect.ValueOf(fact).Elem(), ""); path != "" {
				t.Errorf("the golden payload does not set %s", path)
			}
			again, err := codec.Encode(fact, 0, event.Meta{CommandID: uuid.NameSpaceOID, At: time.Unix(1, 0)})
			if err != nil {
				t.Fatal(err)
			}
			twice, err := codec.Decode(eventstore.Recorded{Type: again.Type, Data: again.Data})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fact, twice); diff != "" {
				t.Errorf("decoded, encoded and decoded again, the fact is another: %s", diff)
			}
			if diff := cmp.Diff(canonical(t, payload), canonical(t, again.Data)); diff != "" {
				t.Errorf("the fact is encoded in another shape than its golden payload: %s", diff)
			}
		})
	}
}

func TestGoldenPayloads_EachHasItsName(t *testing.T) {
	files, err := os.ReadDir(golden)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".json")
		if !slices.ContainsFunc(domain.Catalog, func(c domain.Constructor) bool { return c().EventType() == name }) {
			t.Errorf("%s: the catalogue has lost this name, and logs that hold it can no longer be read", f.Name())
		}
	}
}

func TestEventNames_Form(t *testing.T) {
	shape := regexp.MustCompile(`^[a-z]+\.[a-z]+(-[a-z]+)*\.v[1-9][0-9]*$`)
	for _, construct := range domain.Catalog {
		if name := construct().EventType(); !shape.MatchString(name) {
			t.Errorf("%s is no name of an event", name)
		}
	}
}

func canonical(t *testing.T, payload []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// writeGolden writes a payload with every field set.
func writeGolden(t *testing.T, codec *eventstore.Codec, fact event.Event) []byte {
	t.Helper()
	fill(reflect.ValueOf(fact).Elem(), "", new(int64))
	stored, err := codec.Encode(fact, 0, event.Meta{CommandID: uuid.NameSpaceOID, At: time.Unix(1, 0)})
	if err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, stored.Data, "", "  "); err != nil {
		t.Fatal(err)
	}
	indented.WriteByte('\n')
	payload := indented.Bytes()
	if err := os.MkdirAll(golden, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenPath(fact.EventType()), payload, 0o644); err != nil {
		t.Fatal(err)
	}
	return payload
}

// fill sets every field to something that names it and occurs once.
func fill(v reflect.Value, name string, n *int64) {
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 11, 5, 9, 30, 0, int(*n)*1000, time.UTC)))
		return
	case uuid.UUID:
		v.Set(reflect.ValueOf(uuid.NewSHA1(uuid.NameSpaceOID, []byte(name+string(rune('a'+*n))))))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text(name))
	case reflect.Int, reflect.Int64:
		v.SetInt(*n)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float32:
		v.SetFloat(float64(*n) + 0.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), name, n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(text(name+" key")), reflect.ValueOf(text(name)))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), v.Type().Field(i).Name, n)
		}
	default:
		panic("no golden value for " + v.Type().String())
	}
}

// text is the value of a string field, with what JSON and customers make difficult.
func text(field string) string {
	switch field {
	case "Month":
		return "2026-11"
	case "Hash", "SHA256", "Content", "Fingerprint":
		return "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	case "Inline", "SourceID", "Author", "Identity", "Name", "Excerpt", "Entities":
		return field + ` <b>"ü"</b> & ` + "\u2028" + `🙂`
	default:
		return strings.ToLower(field)
	}
}

// zeroField is the path of a field that is not set, "" where all are. An unset field would decode
// the same if it were misspelt.
func zeroField(v reflect.Value, path string) string {
	if v.IsZero() {
		return path
	}
	switch v.Interface().(type) {
	case time.Time, uuid.UUID:
		return ""
	}
	switch v.Kind() {
	case reflect.Pointer:
		return zeroField(v.Elem(), path)
	case reflect.Slice:
		for i := range v.Len() {
			if p := zeroField(v.Index(i), path); p != "" {
				return p
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if p := zeroField(v.Field(i), path+"."+v.Type().Field(i).Name); p != "" {
				return p
			}
		}
	}
	return ""
}

// Load is counted by project, so each event with a field for its project has a method that returns it.
func TestCatalog_EventsOfProjects(t *testing.T) {
	project, said := uuid.New(), 0
	for _, construct := range domain.Catalog {
		e := construct()
		field := reflect.ValueOf(e).Elem().FieldByName("ProjectID")
		of, has := e.(event.OfProject)
		if has != field.IsValid() {
			t.Errorf("%s has field ProjectID: %t, method Project: %t", e.EventType(), field.IsValid(), has)
			continue
		}
		if !has {
			continue
		}
		said++
		if field.Set(reflect.ValueOf(project)); of.Project() != project {
			t.Errorf("%s has project %s, want %s", e.EventType(), of.Project(), project)
		}
	}
	if said < 40 {
		t.Errorf("%d events have a project", said)
	}
}
