package main

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const settingsPage = "../../docs/settings.md"

var (
	// tableOfSettings is a table of the page between a comment with the variables of its rows and one that ends it.
	tableOfSettings = regexp.MustCompile(`(?s)(<!-- settings: ([A-Z_\s]+?) -->\n).*?(<!-- end -->)`)
	// defaultInHelp is how a help names a default that is not a value.
	defaultInHelp = regexp.MustCompile(`; default:? ([^;.]+)`)
	addressInHelp = regexp.MustCompile(`[a-z+]+://[^\s;]*[^\s;.,]`)
)

// The tables of docs/settings.md are what the tags of Settings have: each setting once, with its flag, its default and
// its help. `make docs` writes them.
func TestSettings_PageIsCurrent(t *testing.T) {
	page, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	rows := rowsOfSettings()
	current := tableOfSettings.ReplaceAllStringFunc(string(page), func(table string) string {
		parts := tableOfSettings.FindStringSubmatch(table)
		text := parts[1] + "\n| variable | flag | default | meaning |\n|---|---|---|---|\n"
		for _, name := range strings.Fields(parts[2]) {
			row, ok := rows["ANNALS_"+name]
			if !ok {
				t.Errorf("%s has ANNALS_%s, which is no setting or is there twice", settingsPage, name)
			}
			delete(rows, "ANNALS_"+name)
			text += row
		}
		return text + "\n" + parts[3]
	})
	for name := range rows {
		t.Errorf("%s lacks %s: add it to the comment of a table", settingsPage, name)
	}
	if current == string(page) {
		return
	}
	if os.Getenv("ANNALS_UPDATE_DOCS") == "" {
		t.Fatalf("%s differs from the settings: run make docs, and read the difference", settingsPage)
	}
	if err := os.WriteFile(settingsPage, []byte(current), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rowsOfSettings returns a row of a table for each setting, by its variable.
func rowsOfSettings() map[string]string {
	rows := map[string]string{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Settings]()) {
		if field.Anonymous {
			continue
		}
		help, value := field.Tag.Get("help"), field.Tag.Get("default")
		if value != "" {
			value = "`" + value + "`"
		} else if found := defaultInHelp.FindStringSubmatch(help); found != nil {
			value, help = found[1], strings.Replace(help, found[0], "", 1)
		}
		help = addressInHelp.ReplaceAllString(help, "`$0`")
		cells := []string{"`" + field.Tag.Get("setting") + "`", "`--" + field.Tag.Get("name") + "`", value, help}
		rows[field.Tag.Get("setting")] = "| " + strings.Join(cells, " | ") + " |\n"
	}
	return rows
}
