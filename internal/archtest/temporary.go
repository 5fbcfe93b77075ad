package archtest

import (
	"go/ast"
	"go/token"
	"slices"
)

// checkTemporary reports calls that leave text of customers in a file with a name if the process dies meanwhile.
func checkTemporary(name string, files *token.FileSet, file *ast.File) (found []Violation) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		f, is := call.Fun.(*ast.SelectorExpr)
		if !is {
			return true
		}
		if may, writes := temporary[f.Sel.Name]; writes && !slices.Contains(may, name) {
			what := f.Sel.Name + " makes a temporary file with a name: use fsx.Unnamed, and Files for a form of a page"
			found = append(found, Violation{name, files.Position(n.Pos()).Line, what})
		}
		return true
	})
	return found
}
