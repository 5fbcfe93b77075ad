package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// MaxColumns is the most columns of a line of Go. A tab counts as one. In tests the text of string
// literals and what is inside composite literals do not count: they are data.
const MaxColumns = 120

// avoided are words that the glossary replaces.
var avoided = regexp.MustCompile(`(?i)\b(behind|beside|anew|for ever|whoever|whom|as far as|comes to be|` +
	`told|tells|says|stands? in|that of which)\b`)

// messages are the functions and methods whose string arguments a person reads.
var messages = map[string]bool{
	"Errorf": true, "New": true, "Error": true, "Fatal": true, "Fatalf": true, "Skip": true, "Skipf": true, "Log": true, "Logf": true,
	"Info": true, "Warn": true, "Debug": true, "InfoContext": true, "WarnContext": true, "ErrorContext": true, "DebugContext": true,
}

// checkPlain reports avoided words in the comments and messages of a file, and its wide lines.
func checkPlain(name string, src []byte, files *token.FileSet, file *ast.File) []Violation {
	// This file lists the words.
	if ast.IsGenerated(file) || path.Base(name) == "plain.go" {
		return nil
	}
	var found []Violation
	check := func(pos token.Pos, text string) {
		for i, line := range strings.Split(text, "\n") {
			for _, word := range avoided.FindAllString(line, -1) {
				found = append(found, Violation{name, files.Position(pos).Line + i, fmt.Sprintf("the glossary replaces %q", word)})
			}
		}
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			check(c.Pos(), c.Text)
		}
	}
	raw, data := map[int]bool{}, map[int]int{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING && strings.HasSuffix(name, "_test.go") {
				data[files.Position(n.Pos()).Line] += len([]rune(n.Value))
			}
			if strings.HasPrefix(n.Value, "`") {
				for line := files.Position(n.Pos()).Line; line <= files.Position(n.End()).Line; line++ {
					raw[line] = true
				}
			}
		case *ast.CompositeLit:
			if strings.HasSuffix(name, "_test.go") {
				for line := files.Position(n.Lbrace).Line + 1; line <= files.Position(n.Rbrace).Line; line++ {
					raw[line] = true
				}
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && messages[f.Sel.Name] {
				for _, arg := range n.Args {
					if text, ok := arg.(*ast.BasicLit); ok && text.Kind == token.STRING {
						if message, err := strconv.Unquote(text.Value); err == nil {
							check(text.Pos(), message)
						}
					}
				}
			}
		}
		return true
	})
	for i, line := range bytes.Split(src, []byte("\n")) {
		// A row of a table stays on one line.
		if row := bytes.TrimLeft(line, "\t"); bytes.HasPrefix(row, []byte("{")) || bytes.HasPrefix(row, []byte(`"`)) {
			continue
		}
		if n := len([]rune(string(line))) - data[i+1]; n > MaxColumns && !raw[i+1] {
			found = append(found, Violation{name, i + 1, fmt.Sprintf("%d columns are too wide (at most %d)", n, MaxColumns)})
		}
	}
	return found
}

var (
	code     = regexp.MustCompile("`[^`]*`")
	unfolded = regexp.MustCompile(`\]\([^)]*\)|\S*://\S*`)
)

// checkPlainText reports avoided words in a page, in SQL or in YAML, and wide lines. Links and addresses do not count for
// the width, and rows of tables stay on one line. In YAML rows and the strings of examples are what the service answers.
func checkPlainText(name string, src []byte) []Violation {
	var found []Violation
	ext := path.Ext(name)
	if ext != ".md" && ext != ".sql" && ext != ".yaml" && ext != ".yml" {
		return nil
	}
	for i, line := range strings.Split(string(src), "\n") {
		text := strings.TrimLeft(line, " ")
		row := strings.HasPrefix(text, "|")
		if ext != ".md" && ext != ".sql" && (row || strings.HasPrefix(text, `"`)) {
			continue
		}
		for _, word := range avoided.FindAllString(code.ReplaceAllString(line, ""), -1) {
			found = append(found, Violation{name, i + 1, fmt.Sprintf("the glossary replaces %q", word)})
		}
		if n := len([]rune(unfolded.ReplaceAllString(line, ""))); n > MaxColumns && !row {
			found = append(found, Violation{name, i + 1, fmt.Sprintf("%d columns are too wide (at most %d)", n, MaxColumns)})
		}
	}
	return found
}
