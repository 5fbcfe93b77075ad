package memory_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/internal/runtest"
)

// What clients read of the kinds names each of them, in the order of the table.
func TestKinds_AreDocumented(t *testing.T) {
	var want []string
	for _, k := range memory.Kinds() {
		want = append(want, k.Name)
	}
	for path, pattern := range map[string]string{
		"../../readapi/openapi.yaml": `x-extensible-enum: \[source, (observation[^\]]*)\]`,
		"../../client/recall.go":     `(?s)ArtifactSource +=[^\n]*\n(.*?)\n\)`,
		"../../docs/concepts.md":     `(?s)(\| observation .*?)\n\n`,
	} {
		text, err := os.ReadFile(path)
		runtest.Must(t, err)
		found := regexp.MustCompile(pattern).FindStringSubmatch(string(text))
		if found == nil {
			t.Errorf("%s has no list of kinds", path)
			continue
		}
		var got []string
		for _, name := range want {
			if regexp.MustCompile(`(^|[ "|])` + name + `($|[ ",|])`).MatchString(found[1]) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s names %s, want %s", path, strings.Join(got, ", "), strings.Join(want, ", "))
		}
	}
}

func TestKindOf_Unknown(t *testing.T) {
	if k, ok := memory.KindOf("hunch"); ok || k != (memory.Kind{Name: "hunch"}) {
		t.Errorf("got %+v, %t", k, ok)
	}
}
