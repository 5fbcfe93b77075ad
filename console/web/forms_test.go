package web_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

var (
	postForm  = regexp.MustCompile(`(?s)<form\b[^>]*method="post".*?</form>`)
	spentOnce = regexp.MustCompile(`\{\{once\}\}|name="form" value="\{\{token\}\}"`)
	live      = regexp.MustCompile(`<[a-z]+\b[^>]*hx-post=[^>]*>`)
	unspent   = regexp.MustCompile(`hx-params="not form"`)
)

// Each form that changes something has a token, and what scripts send while somebody types spends none.
func TestTemplates_FormsAreSpentOnce(t *testing.T) {
	forms := 0
	runtest.Must(t, filepath.WalkDir("..", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".html" {
			return err
		}
		text, err := os.ReadFile(file) //nolint:gosec // of the tree
		for _, form := range postForm.FindAllString(string(text), -1) {
			if forms++; !spentOnce.MatchString(form) {
				t.Errorf("%s: %.120s… has no token", file, form)
			}
		}
		for _, part := range live.FindAllString(string(text), -1) {
			if !unspent.MatchString(part) {
				t.Errorf("%s: %.120s… spends the form", file, part)
			}
		}
		return err
	}))
	if forms < 50 {
		t.Errorf("%d forms were found", forms)
	}
}
