package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// adapters translate a request into one command or query, and its result into an answer: the HTTP API, the operator
// socket and the command line. notAdapters are folders below them with other work: the files of the data
// folder, the checks of other servers, and the parts of the service.
var (
	adapters    = []string{"readapi", "writeapi", "cmd/annals"}
	notAdapters = []string{
		"cmd/annals/internal/datafolder", "cmd/annals/internal/doctor", "cmd/annals/internal/probe",
		"cmd/annals/internal/server",
	}
)

// notAdapting are the files of adapters that may do more, each with the reason. A file that does no more is taken off.
var notAdapting = map[string]string{
	"cmd/annals/node.go":  "it runs the event store alone",
	"cmd/annals/erase.go": "it watches the erasure of a person",
}

var (
	sqlText = regexp.MustCompile(`(?is)^\s*(select\s+(exists\s*\(|.*\sfrom\s)|insert\s+into\s|update\s+\S+\s+(\w+\s+)?set\s|` +
		`delete\s+from\s|with\s+(recursive\s+)?\w+\s+(\([^)]*\)\s+)?as\s)`)
	// streamReads are the methods that read streams and the whole log, with the number of their arguments.
	streamReads = map[string]int{
		"Read": 5, "ReadAt": 2, "ReadLast": 2, "ReadAll": 3, "ReadBlob": 2, "Scan": 4, "Subscribe": 2,
	}
	// logWords are what an adapter may know of the event store: refusals, and the place of an event.
	logWords = []string{"ErrDeleted", "ErrUnavailable", "Position", "Revision"}
)

// checkAdapter reports where a file of an adapter does more than translate: SQL, a read of the log, a loop over pages.
func checkAdapter(name, dir string, files *token.FileSet, file *ast.File) (found []Violation) {
	if !isBelow(dir, adapters) || isBelow(dir, notAdapters) || forTests(dir) {
		return nil
	}
	add := func(p token.Pos, format string, args ...any) {
		what := fmt.Sprintf(format, args...) + ": move it to commands or projections"
		found = append(found, Violation{name, files.Position(p).Line, "an adapter translates and nothing else; " + what})
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		ours, _ := strings.CutPrefix(imported, Module+"/")
		switch {
		case err != nil, ours == "eventstore", ours == "eventstore/inspect", ours == "eventstore/backoff":
		case below(imported, "github.com/jackc/pgx"), below(ours, "eventstore"):
			add(spec.Pos(), "it imports %s", imported)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && sqlText.MatchString(text) {
				add(n.Pos(), "it has SQL")
			}
		case *ast.SelectorExpr:
			if x, is := n.X.(*ast.Ident); is && x.Name == "eventstore" && !slices.Contains(logWords, n.Sel.Name) {
				add(n.Pos(), "it uses eventstore.%s", n.Sel.Name)
			}
		case *ast.CallExpr:
			if f, is := n.Fun.(*ast.SelectorExpr); is && takesContext(n) && len(n.Args) == streamReads[f.Sel.Name] {
				add(n.Pos(), "it reads the log with %s", f.Sel.Name)
			}
		case *ast.ForStmt:
			if callsOut(n.Body) {
				add(n.Pos(), "it loops over pages")
			}
		}
		return true
	})
	if notAdapting[name] == "" {
		return found
	}
	if len(found) == 0 {
		return []Violation{{name, 0, "it is on the list notAdapting, and translates only: take it off"}}
	}
	return nil
}

// callsOut reports whether a block has a call that takes a context, as a query or a request does.
func callsOut(block *ast.BlockStmt) (is bool) {
	ast.Inspect(block, func(n ast.Node) bool {
		call, isCall := n.(*ast.CallExpr)
		is = is || isCall && takesContext(call)
		return !is
	})
	return is
}

// takesContext reports whether the first argument of a call is a context, unless package context itself is called.
func takesContext(call *ast.CallExpr) bool {
	if f, is := call.Fun.(*ast.SelectorExpr); is {
		if x, is := f.X.(*ast.Ident); is && x.Name == "context" {
			return false
		}
	}
	return len(call.Args) > 0 && isContext(call.Args[0])
}

// isContext reports whether an expression is a context by its name: one that ends in ctx, or what t.Context() or
// context.Background() returns.
func isContext(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return strings.HasSuffix(strings.ToLower(e.Name), "ctx")
	case *ast.SelectorExpr:
		return strings.HasSuffix(strings.ToLower(e.Sel.Name), "ctx")
	case *ast.CallExpr:
		f, is := e.Fun.(*ast.SelectorExpr)
		return is && slices.Contains([]string{"Context", "Background", "WithoutCancel"}, f.Sel.Name)
	default:
		return false
	}
}
