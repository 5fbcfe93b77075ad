package readapi_test

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/readapi"
)

// loadDocument reads the document as clients do, without what the tests add to be strict.
func loadDocument(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(readapi.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDocument_Valid(t *testing.T) {
	if err := loadDocument(t).Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

// A generated client refuses a value that a closed enumeration lacks, and has no name for an object
// without a schema of its own.
func TestDocument_GeneratesClients(t *testing.T) {
	doc := loadDocument(t)
	named := map[*openapi3.Schema]bool{}
	for _, ref := range doc.Components.Schemas {
		named[ref.Value] = true
	}
	seen := 0
	check := func(where string, answer bool, body *openapi3.SchemaRef) {
		err := body.WalkSubtree(func(at string, ref *openapi3.SchemaRef) error {
			seen++
			s := ref.Value
			if answer && len(s.Enum) > 0 {
				t.Errorf("%s%s: the enumeration %v is closed", where, at, s.Enum)
			}
			if len(s.Enum) > 0 && !named[s] {
				t.Errorf("%s%s: the enumeration %v has no name", where, at, s.Enum)
			}
			if slices.ContainsFunc(s.Enum, func(value any) bool { _, ok := value.(string); return !ok }) {
				t.Errorf("%s%s: the enumeration %v is not of strings", where, at, s.Enum)
			}
			if len(s.Properties) > 0 && !named[s] && !strings.Contains(at, "allOf") {
				t.Errorf("%s%s: an object has no name", where, at)
			}
			types := slices.DeleteFunc(slices.Clone(s.Type.Slice()), func(name string) bool { return name == "null" })
			if len(types) > 1 || len(types) == 0 && len(s.Type.Slice()) > 0 && !strings.Contains(at, "anyOf") {
				t.Errorf("%s%s: generators have no type for %v", where, at, s.Type.Slice())
			}
			if !answer && s.Default != nil {
				t.Errorf("%s%s: a default makes a field of a type required", where, at)
			}
			if !areApart(s.OneOf) {
				t.Errorf("%s%s: an object is of two of its types", where, at)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			where := method + " " + path
			if op.Description == "" || op.Summary == "" {
				t.Errorf("%s has no summary or no description", where)
			}
			if op.RequestBody != nil {
				for _, media := range op.RequestBody.Value.Content {
					check(where+" takes ", false, media.Schema)
				}
			}
			for status, response := range op.Responses.Map() {
				for _, media := range response.Value.Content {
					check(where+" "+status+" ", true, media.Schema)
				}
			}
		}
	}
	if seen < 500 {
		t.Errorf("%d schemas were looked at", seen)
	}
}

// areApart reports whether each of some objects needs a field that no other one has.
func areApart(list openapi3.SchemaRefs) bool {
	for i, one := range list {
		for j, other := range list {
			isOwn := func(name string) bool { return other.Value.Properties[name] == nil }
			if i != j && !slices.ContainsFunc(one.Value.Required, isOwn) {
				return false
			}
		}
	}
	return true
}

// Generators put all components into one name space, and make a function New… for each schema.
func TestDocument_NamesOfComponents(t *testing.T) {
	c := loadDocument(t).Components
	names := slices.Concat(
		slices.Collect(maps.Keys(c.Schemas)), slices.Collect(maps.Keys(c.Parameters)), slices.Collect(maps.Keys(c.Responses)),
		slices.Collect(maps.Keys(c.Headers)),
	)
	slices.Sort(names)
	for i, name := range names {
		if strings.HasPrefix(name, "New") || i > 0 && names[i-1] == name {
			t.Errorf("a generator has two meanings of %s", name)
		}
	}
	if len(names) < 100 {
		t.Errorf("there are %d names", len(names))
	}
}

// Errors share one schema, and each response lists its codes.
func TestDocument_CodesOfErrors(t *testing.T) {
	faults, err := os.ReadFile("../domain/fault/codes.go")
	if err != nil {
		t.Fatal(err)
	}
	for path, item := range loadDocument(t).Paths.Map() {
		for method, op := range item.Operations() {
			for status, response := range op.Responses.Map() {
				if status < "400" {
					continue
				}
				media, codes := response.Value.Content["application/json"], apitest.Codes(response.Value)
				if media != nil && media.Schema.Ref != "#/components/schemas/Error" {
					t.Errorf("%s %s %s has the schema %q", method, path, status, media.Schema.Ref)
				}
				if media != nil && len(codes) == 0 {
					t.Errorf("%s %s %s lists no code", method, path, status)
				}
				// Beyond the calls per minute there is no body.
				if media != nil && status == "429" || media == nil && status != "429" {
					t.Errorf("%s %s %s has a body, or none: %v", method, path, status, media)
				}
				for _, code := range codes {
					if !strings.Contains(string(faults), strconv.Quote(code)) {
						t.Errorf("%s %s %s has the code %s, which no fault has", method, path, status, code)
					}
				}
			}
		}
	}
}
