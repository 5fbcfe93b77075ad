package domain_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

var update = flag.Bool("update", false,
	"write the golden payloads that are missing; those that are there are never changed")

// golden is the folder of the golden payloads, goldenSums the list of their SHA-256 sums as sha256sum
// prints it.
const (
	golden     = "testdata/events"
	goldenSums = "testdata/events.sha256"
)

// goldenPath is where the payload of an event at a step is.
func goldenPath(name string, step int) string {
	if step > event.FirstStep {
		name = fmt.Sprintf("%s+%d", name, step)
	}
	return filepath.Join(golden, name+".json")
}

// TestGoldenPayloads_EveryEventDecodes is the promise to logs that exist: each golden payload of each step
// decodes, and encoding the fact again gives the same payload at the same step. A field that was added without a
// step, renamed or dropped fails here.
func TestGoldenPayloads_EveryEventDecodes(t *testing.T) { everyEventDecodes(t, domain.Catalog) }

func everyEventDecodes(t *testing.T, catalog []domain.Constructor) {
	codec, err := eventstore.NewCodec(catalog)
	runtest.Must(t, err)
	for _, construct := range catalog {
		steps, err := event.StepsOf(construct())
		runtest.Must(t, err)
		for step := event.FirstStep; step <= steps.Last(); step++ {
			t.Run(strings.TrimSuffix(filepath.Base(goldenPath(construct().EventType(), step)), ".json"), func(t *testing.T) {
				decodesAt(t, codec, construct, step)
			})
		}
	}
}

// decodesAt checks the golden payload of an event at a step.
func decodesAt(t *testing.T, codec *eventstore.Codec, construct domain.Constructor, step int) {
	t.Helper()
	name := construct().EventType()
	payload, err := os.ReadFile(goldenPath(name, step))
	if os.IsNotExist(err) && *update {
		payload = writeGolden(t, codec, construct(), step)
	} else if err != nil {
		t.Fatalf("%v (go test ./domain -update writes what is missing)", err)
	}
	fact, err := codec.Decode(eventstore.Recorded{Type: name, Data: payload})
	runtest.Must(t, err)
	if path := zeroField(at(fact, step), ""); path != "" {
		t.Errorf("the golden payload does not set %s", path)
	}
	again, err := codec.Encode(fact, 0, event.Meta{CommandID: uuid.NameSpaceOID, At: time.Unix(1, 0)})
	runtest.Must(t, err)
	twice := codec.DecodeRecorded(eventstore.Recorded{Type: again.Type, Data: again.Data, Meta: again.Meta})
	if twice.Err != nil {
		t.Fatal(twice.Err)
	}
	if twice.Details.Schema != step {
		t.Errorf("the fact is stored at step %d, want %d", twice.Details.Schema, step)
	}
	if diff := cmp.Diff(fact, twice.Event); diff != "" {
		t.Errorf("decoded, encoded and decoded again, the fact is another: %s", diff)
	}
	if diff := cmp.Diff(canonical(t, payload), canonical(t, again.Data)); diff != "" {
		t.Errorf("the fact is encoded in another shape than its golden payload: %s", diff)
	}
}

// at returns the fields that an event has at a step, as a struct.
func at(e event.Event, step int) reflect.Value {
	v := reflect.ValueOf(e).Elem()
	var fields []reflect.StructField
	var values []reflect.Value
	for i := range v.NumField() {
		if f := v.Type().Field(i); since(f) <= step {
			f.Anonymous = false
			fields, values = append(fields, f), append(values, v.Field(i))
		}
	}
	has := reflect.New(reflect.StructOf(fields)).Elem()
	for i, value := range values {
		has.Field(i).Set(value)
	}
	return has
}

// since is the step that brought a field.
func since(f reflect.StructField) int {
	step, err := strconv.Atoi(f.Tag.Get("since"))
	if err != nil {
		return event.FirstStep
	}
	return step
}

// The check of golden payloads, with an event that has grown: it wants a payload of each step, with every field of it.
func TestGoldenPayloads_OfSteps(t *testing.T) {
	t.Chdir(t.TempDir())
	before := *update
	defer func() { *update = before }()
	grown := []domain.Constructor{func() event.Event { return new(grownEvent) }}
	*update = true
	everyEventDecodes(t, grown)
	*update = false
	everyEventDecodes(t, grown)
	for step, want := range map[int]string{
		1: `{"a":"a"}`, 2: `{"a":"a","b":"b"}`, 3: `{"a":"a","b":"b","c":["c"]}`,
	} {
		payload, err := os.ReadFile(goldenPath(new(grownEvent).EventType(), step))
		runtest.Must(t, err)
		if diff := cmp.Diff(canonical(t, []byte(want)), canonical(t, payload)); diff != "" {
			t.Errorf("step %d: %s", step, diff)
		}
	}
}

type grownEvent struct {
	A string   `json:"a"`
	B *string  `json:"b,omitempty" since:"2"`
	C []string `json:"c,omitempty" since:"3"`
}

func (grownEvent) EventType() string { return "thing.grown.v1" }

func TestGoldenPayloads_EachHasItsName(t *testing.T) {
	files, err := os.ReadDir(golden)
	runtest.Must(t, err)
	for _, f := range files {
		name, _, _ := strings.Cut(strings.TrimSuffix(f.Name(), ".json"), "+")
		if !slices.ContainsFunc(domain.Catalog, func(c domain.Constructor) bool { return c().EventType() == name }) {
			t.Errorf("%s: the catalogue has lost this name, and logs that hold it can no longer be read", f.Name())
		}
	}
}

// TestGoldenPayloads_NeverChange is the promise of version 1.0: a log that was written once is read by
// every later version. So a golden payload that is in the list of sums stays as it is for good, byte by
// byte, and no line of the list is changed or removed. A new name or step adds a payload and a line (go test
// ./domain -update); what has to look different gets a new name.
func TestGoldenPayloads_NeverChange(t *testing.T) {
	list, err := os.ReadFile(goldenSums)
	runtest.Must(t, err)
	files, err := filepath.Glob(filepath.Join(golden, "*.json"))
	runtest.Must(t, err)
	kept := strings.FieldsFunc(string(list), func(r rune) bool { return r == '\n' })
	listed := map[string]bool{}
	for _, line := range kept {
		sum, file, _ := strings.Cut(line, "  ")
		listed[file] = true
		payload, err := os.ReadFile(filepath.Join(golden, file))
		if err != nil {
			t.Errorf("a golden payload is gone, and logs that hold it: %v", err)
			continue
		}
		if got := sha256.Sum256(payload); hex.EncodeToString(got[:]) != sum {
			t.Errorf("%s was changed: events of that shape are in logs, so give what is new another name", file)
		}
	}
	for _, path := range files {
		if file := filepath.Base(path); !listed[file] && *update {
			payload, err := os.ReadFile(path)
			runtest.Must(t, err)
			kept = append(kept, fmt.Sprintf("%x  %s", sha256.Sum256(payload), file))
		} else if !listed[file] {
			t.Errorf("%s is not in %s (go test ./domain -update adds it)", file, goldenSums)
		}
	}
	if *update {
		slices.SortFunc(kept, func(a, b string) int { return strings.Compare(a[sha256.Size*2:], b[sha256.Size*2:]) })
		runtest.Must(t, os.WriteFile(goldenSums, []byte(strings.Join(kept, "\n")+"\n"), 0o644))
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
	runtest.Must(t, decoder.Decode(&v))
	return v
}

// writeGolden writes a payload with every field set that the event has at a step.
func writeGolden(t *testing.T, codec *eventstore.Codec, fact event.Event, step int) []byte {
	t.Helper()
	v := reflect.ValueOf(fact).Elem()
	fill(v, "", new(int64))
	for i := range v.NumField() {
		if since(v.Type().Field(i)) > step {
			v.Field(i).SetZero()
		}
	}
	stored, err := codec.Encode(fact, 0, event.Meta{CommandID: uuid.NameSpaceOID, At: time.Unix(1, 0)})
	runtest.Must(t, err)
	var indented bytes.Buffer
	runtest.Must(t, json.Indent(&indented, stored.Data, "", "  "))
	indented.WriteByte('\n')
	payload := indented.Bytes()
	runtest.Must(t, os.MkdirAll(golden, 0o755))
	runtest.Must(t, os.WriteFile(goldenPath(fact.EventType(), step), payload, 0o644))
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
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), name, n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, name+" key", n)
		fill(value, name, n)
		v.SetMapIndex(key, value)
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

// Load is counted by project, which is a field of the same name and type in each event that has one.
func TestCatalog_EventsOfProjects(t *testing.T) {
	project, have := uuid.New(), 0
	for _, construct := range domain.Catalog {
		e := construct()
		want := uuid.Nil
		if field := reflect.ValueOf(e).Elem().FieldByName("ProjectID"); field.IsValid() {
			want = project
			field.Set(reflect.ValueOf(project))
			have++
		}
		if got := event.ProjectOf(e); got != want {
			t.Errorf("%s has project %s, want %s", e.EventType(), got, want)
		}
		payload, err := json.Marshal(e)
		runtest.Must(t, err)
		if names := strings.Contains(string(payload), `"projectId":`); names != (want == project) {
			t.Errorf("%s stores a projectId: %t, has field ProjectID: %t", e.EventType(), names, want == project)
		}
	}
	if have < 40 {
		t.Errorf("%d events have a project", have)
	}
	if got := event.ProjectOf(nil); got != uuid.Nil { // of what cannot be decoded
		t.Errorf("no event has project %s", got)
	}
}

// A blob has no leaf, so each event that refers to one holds its hash: a stream is named in blob.Ref, or in a field
// that refers to no blob.
func TestCatalog_BlobsAreReferredToWithTheirHash(t *testing.T) {
	named := map[string]bool{
		"registry.event-set-aside.v1.Stream": true, "audit.records-kept.v1.Stream": true,
		"deletion.facts-kept.v1.Blobs": true, // for their tombstones: the events that referred to them have records
	}
	var walk func(path string, of reflect.Type)
	walk = func(path string, of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(path, of.Elem())
		case reflect.Struct:
			for i := range of.NumField() {
				if f := of.Field(i); of != reflect.TypeFor[blob.Ref]() && of.PkgPath() != "time" {
					walk(path+"."+f.Name, f.Type)
				}
			}
		case reflect.String:
			last := strings.ToLower(path[strings.LastIndex(path, ".")+1:])
			if (strings.Contains(last, "stream") || strings.Contains(last, "blob")) && !named[path] {
				t.Errorf("%s names a stream without a hash", path)
			}
			delete(named, path)
		}
	}
	for _, construct := range domain.Catalog {
		e := construct()
		walk(e.EventType(), reflect.TypeOf(e).Elem())
	}
	for path := range named {
		t.Errorf("%s is not there any more", path)
	}
}
