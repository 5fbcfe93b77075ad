package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
)

//go:embed static
var staticFiles embed.FS

// static serves the style, the scripts and the icon below a path that holds their sum, so that browsers keep them.
type static struct{ sum string }

func newStatic() (static, error) {
	files, err := staticFiles.ReadDir("static")
	all := sha256.New()
	for _, file := range files {
		content, readErr := staticFiles.ReadFile("static/" + file.Name())
		if readErr != nil {
			return static{}, readErr
		}
		all.Write(content)
	}
	return static{hex.EncodeToString(all.Sum(nil)[:6])}, err
}

func (s static) url(file string) string { return "/static/" + s.sum + "/" + file }

// ServeHTTP implements http.Handler.
func (s static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("sum") != s.sum {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeFileFS(w, r, staticFiles, "static/"+r.PathValue("file"))
}
