package recall_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// longestList is one word more than a list without a named source may have.
const longestList = 20

// TestWordLists_Short checks that the lists of words in this package are short. A longer list is made of an open source
// that its file names: it belongs to the package lexicon.
func TestWordLists_Short(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	lists := 0
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			words := listOf(n)
			if words > 4 {
				lists++
			}
			if words >= longestList {
				t.Errorf("%s: a list of %d words", files.Position(n.Pos()), words)
			}
			return true
		})
	}
	if lists < 5 {
		t.Errorf("found %d lists", lists)
	}
}

var wordList = regexp.MustCompile(`^[a-z'\s-]+$`)

// listOf returns how many words a literal lists, in one string or in many.
func listOf(n ast.Node) (words int) {
	switch n := n.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && wordList.MatchString(text) {
			return len(strings.Fields(text))
		}
	case *ast.CompositeLit:
		for _, element := range n.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				element = pair.Key
			}
			if listOf(element) > 0 {
				words++
			}
		}
	}
	return words
}
