package web_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"testing"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/runtest"
)

func TestForm_LeavesNoFiles(t *testing.T) {
	files := t.TempDir()
	t.Setenv("TMPDIR", files)
	s := newScene(t, organization.Member, "")
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "big.txt")
	runtest.Must(t, err)
	_, err = part.Write(make([]byte, 12<<20)) // more than what stays in memory
	runtest.Must(t, err)
	runtest.Must(t, form.Close())
	res, text := s.do(t, http.MethodPost, "/upload", func(r *http.Request) {
		r.Header.Set("Origin", console)
		r.Header.Set("Content-Type", form.FormDataContentType())
		r.Body = io.NopCloser(&body)
	})
	if res.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	left, err := os.ReadDir(files)
	if err != nil || len(left) > 0 || s.files == 0 {
		t.Errorf("%v are left of %d files, %v", left, s.files, err)
	}
}
