package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed static
var staticFiles embed.FS

// static serves the style, the scripts and the icon under names that hold their sum, so that browsers keep them.
type static struct {
	names map[string]string // file → name with its sum
	files map[string][]byte // name with its sum → content
}

func newStatic() (*static, error) {
	s := &static{names: map[string]string{}, files: map[string][]byte{}}
	err := fs.WalkDir(staticFiles, "static", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := staticFiles.ReadFile(file)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		base, ext := path.Base(file), path.Ext(file)
		name := strings.TrimSuffix(base, ext) + "." + hex.EncodeToString(sum[:6]) + ext
		s.names[base], s.files[name] = name, content
		return nil
	})
	return s, err
}

func (s *static) url(file string) string { return "/static/" + s.names[file] }

// ServeHTTP implements http.Handler.
func (s *static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/static/")
	content, ok := s.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}
