package web_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/runtest"
)

// watched is a body that looks after each read at what lies in a folder.
type watched struct {
	io.Reader
	folder string
	seen   map[string]bool
}

func (b watched) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	list, failed := os.ReadDir(b.folder)
	if failed != nil {
		return n, failed
	}
	for _, file := range list {
		b.seen[file.Name()] = true
	}
	return n, err
}

// upload sends a form with a field, and files by their names in turn with their texts.
func (s *scene) upload(t *testing.T, change func(io.Reader) io.Reader, files ...string) (answer, string) {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	runtest.Must(t, form.WriteField("field", "value"))
	for i := 0; i < len(files); i += 2 {
		part, err := form.CreateFormFile("file", files[i])
		runtest.Must(t, err)
		_, err = io.WriteString(part, files[i+1])
		runtest.Must(t, err)
	}
	runtest.Must(t, form.Close())
	return s.do(t, http.MethodPost, "/upload", func(r *http.Request) {
		r.Header.Set("Origin", console)
		r.Header.Set("Content-Type", form.FormDataContentType())
		r.Body = io.NopCloser(change(&body))
	})
}

// Nothing of an upload has a name in the folder for temporary files, at no time: a process that is killed meanwhile
// leaves nothing that could be read.
func TestForm_FilesHaveNoName(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	s := newScene(t, organization.Member, "")
	small, big, next := strings.Repeat("s", 100), strings.Repeat("b", 12<<20), strings.Repeat("n", 1<<20)
	seen := map[string]bool{}
	res, text := s.upload(t, func(body io.Reader) io.Reader { return watched{body, folder, seen} },
		"small.txt", small, "big.txt", big, "next.txt", next, "empty.txt", "")
	if res.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	for name, want := range map[string]string{
		"small.txt": small, "big.txt": big, "next.txt": next, "empty.txt": "", "field": "value",
	} {
		if got, is := s.uploads[name]; got != want || !is {
			t.Errorf("%s has %d bytes, want %d", name, len(got), len(want))
		}
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) > 0 || len(seen) > 0 {
		t.Errorf("%v are left, and %v were there, %v", left, seen, err)
	}
}

func TestForm_Bounds(t *testing.T) {
	s := newScene(t, organization.Member, "")
	whole := func(body io.Reader) io.Reader { return body }
	half := func(body io.Reader) io.Reader { return io.LimitReader(body, 5_000) }
	many := make([]string, 2*1000)
	for i := range many {
		many[i] = "f"
	}
	for name, c := range map[string]struct {
		files []string
		cut   func(io.Reader) io.Reader
		want  int
	}{
		"999 files and a field":   {many[:2*999], whole, http.StatusSeeOther},
		"1,000 files and a field": {many, whole, http.StatusBadRequest},
		"broken off":              {[]string{"f", strings.Repeat("x", 10_000)}, half, http.StatusBadRequest},
		// The names and the other field have 14 bytes.
		"fields of 11 MiB":      {[]string{"", strings.Repeat("x", 11<<20-14)}, whole, http.StatusSeeOther},
		"fields of more":        {[]string{"", strings.Repeat("x", 11<<20-13)}, whole, http.StatusBadRequest},
		"longer than the route": {[]string{"f", strings.Repeat("x", 16<<20)}, whole, http.StatusRequestEntityTooLarge},
	} {
		if res, text := s.upload(t, c.cut, c.files...); res.StatusCode != c.want {
			t.Errorf("%s: %d %s", name, res.StatusCode, text)
		}
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	if res, text := s.upload(t, whole, "f", strings.Repeat("x", 2<<20)); res.StatusCode != http.StatusInternalServerError {
		t.Errorf("without a disk: %d %s", res.StatusCode, text)
	}
}
