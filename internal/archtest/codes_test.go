package archtest

import (
	"io/fs"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var constantOfCode = regexp.MustCompile(`(?m)^\t(Code\w+)\s+= "([a-z-]+)"$`)

// The client names every code of the service, by the same constant.
func TestCodes_ClientNamesThemAll(t *testing.T) {
	root := os.DirFS("../..")
	codes := func(file string) map[string]string {
		src, err := fs.ReadFile(root, file)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, found := range constantOfCode.FindAllStringSubmatch(string(src), -1) {
			all[found[1]] = found[2]
		}
		return all
	}
	service := codes("domain/fault/codes.go")
	if len(service) == 0 {
		t.Fatal("the service has no codes")
	}
	if diff := cmp.Diff(service, codes("client/errors.go")); diff != "" {
		t.Errorf("codes of the service (-) and of the client (+):\n%s", diff)
	}
}
