package annals

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestBounded(t *testing.T) {
	if text, err := io.ReadAll(&bounded{strings.NewReader("12345"), 5}); err != nil || string(text) != "12345" {
		t.Errorf("as much as allowed: %q, %v", text, err)
	}
	var last final
	if _, err := io.ReadAll(&bounded{strings.NewReader("123456"), 5}); !errors.As(err, &last) {
		t.Errorf("one byte more: %v", err)
	}
}

// Every remark has a line, but for the events that are set aside, which callers list.
func TestRemarks_Lines(t *testing.T) {
	if lines := (Remarks{}).Lines(); len(lines) != 0 {
		t.Errorf("no remarks: %q", lines)
	}
	fields := reflect.TypeFor[Remarks]()
	for i := range fields.NumField() {
		var r Remarks
		name, field := fields.Field(i).Name, reflect.ValueOf(&r).Elem().Field(i)
		switch field.Interface().(type) {
		case string:
			field.SetString("what is wrong")
		case []string:
			field.Set(reflect.ValueOf([]string{"what is wrong"}))
		case int:
			field.SetInt(2)
		case []SetAside:
			field.Set(reflect.ValueOf([]SetAside{{Position: 7}}))
		}
		lines := strings.Join(r.Lines(), "\n")
		if name == "SetAside" {
			if lines != "" {
				t.Errorf("%s: %q", name, lines)
			}
			continue
		}
		if lines != "2 bulk writes of identities given up, since the rows could not be read" &&
			!strings.HasSuffix(lines, "what is wrong") {
			t.Errorf("%s: %q", name, lines)
		}
	}
}
