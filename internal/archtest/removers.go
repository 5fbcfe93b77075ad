package archtest

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

var boundsOfStreams = regexp.MustCompile(bounds)

// checkRemovers reports what takes events out of the log in a file that is not listed for it.
func checkRemovers(name string, files *token.FileSet, file *ast.File) (found []Violation) {
	add := func(n ast.Node, what string) {
		found = append(found, Violation{name, files.Position(n.Pos()).Line, what})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			f, is := n.Fun.(*ast.SelectorExpr)
			if !is || len(n.Args) < 2 || !isContext(n.Args[0]) {
				return true
			}
			if may, removes := removers[f.Sel.Name]; removes && !slices.Contains(may, name) {
				add(n, f.Sel.Name+" takes events out of the log: keep their records first, and list the file in removers")
			}
		case *ast.BasicLit:
			may := slices.ContainsFunc(boundsOnly, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
			if boundsOfStreams.MatchString(n.Value) && !may {
				add(n, "metadata that bounds a stream takes events out of the log without their records")
			}
		}
		return true
	})
	return found
}

// isContext reports whether an argument is a context, by its name.
func isContext(arg ast.Expr) bool {
	switch arg := arg.(type) {
	case *ast.Ident:
		return strings.HasSuffix(strings.ToLower(arg.Name), "ctx")
	case *ast.SelectorExpr:
		return strings.HasSuffix(strings.ToLower(arg.Sel.Name), "ctx")
	case *ast.CallExpr: // t.Context(), context.Background()
		f, is := arg.Fun.(*ast.SelectorExpr)
		return is && slices.Contains([]string{"Context", "Background", "WithoutCancel"}, f.Sel.Name)
	default:
		return false
	}
}
