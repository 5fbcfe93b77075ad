// Package authmd is the document by which agents register: commands with the addresses of this deployment.
package authmd

import (
	"bytes"
	_ "embed"
	"net/http"
	"text/template"

	"github.com/annals-project/annals/internal/auth"
)

//go:embed auth.md
var source string

var document = template.Must(template.New("auth.md").Parse(source))

// Path is where the document is served, on the API's and on the console's address.
const Path = "/auth.md"

// Render returns the document of a deployment.
func Render(u auth.URLs) ([]byte, error) {
	var out bytes.Buffer
	err := document.Execute(&out, u)
	return out.Bytes(), err
}

// Header sets the header of an answer with the document, which any origin may read.
func Header(h http.Header) {
	h.Set("Content-Type", "text/markdown; charset=utf-8")
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Cache-Control", "public, max-age=300")
}
