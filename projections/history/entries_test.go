package history

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain"
)

// goldenOf is the golden payload of a kind, which has every field.
func goldenOf(t *testing.T, name string) any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "domain", "testdata", "events", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var payload any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&payload); err != nil {
		t.Fatal(err)
	}
	return payload
}

// Each kind of the catalogue has a sentence, or a reason why it has none, and each path that it names is in its
// payload. A new kind fails here until it has an entry (see the documentation of the package).
func TestEntries_EachKindOfTheCatalogue(t *testing.T) {
	known := map[string]bool{}
	values := map[string]bool{} // the setting and path of each value that some kind has
	for _, construct := range domain.Catalog {
		name := construct().EventType()
		known[name] = true
		e, is := entries[name]
		if !is || (e.Text == "") == (e.Elsewhere == "") {
			t.Errorf("%s: want a sentence, or a reason why it has none", name)
			continue
		}
		payload := goldenOf(t, name)
		has := func(path string) bool { return path == streamID || valueAt(payload, path) != nil }
		for _, sentence := range append([]Case{{Text: e.Text}}, e.Cases...) {
			if sentence.Path != "" && !has(sentence.Path) {
				t.Errorf("%s has no %s", name, sentence.Path)
			}
			for _, p := range partsOf(sentence.Text) {
				if p.path != "" && p.path != by && !has(p.path) {
					t.Errorf("%s: %q: the payload has no %s", name, sentence.Text, p.path)
				}
				if !slices.Contains(forms, p.form) {
					t.Errorf("%s: %q: there is no form %q", name, sentence.Text, p.form)
				}
			}
		}
		for about := range strings.FieldsSeq(e.About) {
			if kind, path, _ := strings.Cut(about, "="); kind == "" || !has(path) {
				t.Errorf("%s is about %q: the payload has no such path", name, about)
			}
		}
		if e.Named != "" && (!has(e.Named) || e.About == "" || e.Texts) {
			t.Errorf("%s names its thing by %s, which it does not have, or is erased", name, e.Named)
		}
		setting := strings.Fields(e.Setting)
		for i, path := range setting {
			if i > 0 && !has(path) {
				t.Errorf("%s sets %q: the payload has no %s", name, e.Setting, path)
			}
		}
		if (e.Setting == "") != (e.Values == "") {
			t.Errorf("%s: want a setting with values, or none", name)
		}
		for text := range strings.FieldsSeq(e.Values) {
			path, form := pathForm(text)
			values[setting[0]+" "+path] = values[setting[0]+" "+path] || has(path)
			if !slices.Contains(forms, form) {
				t.Errorf("%s: there is no form %q", name, form)
			}
		}
		for path := range strings.FieldsSeq(e.Hidden) {
			if !has(path) && !has("effect."+path) {
				t.Errorf("%s hides %s, which it does not have", name, path)
			}
		}
	}
	for name := range entries {
		if !known[name] {
			t.Errorf("%s is not in the catalogue", name)
		}
	}
	for value, has := range values {
		if !has {
			t.Errorf("no kind has the value %s", value)
		}
	}
}

// What looks like a secret is hidden.
func TestEntries_NoSecretIsShown(t *testing.T) {
	for _, construct := range domain.Catalog {
		name := construct().EventType()
		e, has := EntryOf(name)
		if !has {
			continue
		}
		payload, _ := goldenOf(t, name).(map[string]any)
		for field := range payload {
			secret := slices.ContainsFunc([]string{"hash", "token", "recipient", "fingerprint"}, func(word string) bool {
				return strings.Contains(strings.ToLower(field), word)
			})
			if secret && !slices.Contains(strings.Fields(e.Hidden), field) {
				t.Errorf("%s shows %s", name, field)
			}
		}
	}
}
