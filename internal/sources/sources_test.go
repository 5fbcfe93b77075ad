package sources

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/limit"
)

// folder writes files by their path, and returns where they are.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "docs")
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func find(t *testing.T, paths ...string) (names []string) {
	t.Helper()
	files, err := Find(paths...)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Skipped != "" {
			f.Name += " " + f.Skipped
		}
		names = append(names, f.Name)
	}
	return names
}

// Folders are listed in the order of names. Names do not depend on the working directory.
func TestFind_Order(t *testing.T) {
	root := folder(t, map[string]string{
		"b.txt": "b", "a/z.txt": "z", "a.txt": "a", ".git/config": "x", ".hidden": "x", "a/.hidden": "x", "c/d/e.txt": "e",
	})
	if err := os.Symlink("a.txt", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"docs/.git is hidden", "docs/.hidden is hidden", "docs/a/.hidden is hidden", "docs/a/z.txt", "docs/a.txt",
		"docs/b.txt", "docs/c/d/e.txt", "docs/link is not a regular file",
	}
	if diff := cmp.Diff(want, find(t, root)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, find(t, root+string(filepath.Separator))); diff != "" {
		t.Error(diff)
	}
	t.Chdir(root)
	if diff := cmp.Diff(want, find(t, ".")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"b.txt", "z.txt", ".hidden", "link"}, find(t, "b.txt", "a/z.txt", ".hidden", "link")); diff != "" {
		t.Error(diff)
	}
	if _, err := Find("none"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a path that is not there: %v", err)
	}
}

// A file that cannot be read is skipped, on both sides of the limit of its size.
func TestFile_Read(t *testing.T) {
	root := folder(t, map[string]string{
		"a utf-8.txt":    "caf\u00e9",
		"b utf-16le.txt": "\xff\xfec\x00a\x00f\x00\xe9\x00",
		"c utf-16be.txt": "\xfe\xff\x00c\x00a\x00f\x00\xe9",
		"d windows.txt":  "caf\xe9 \x80",
		"e binary":       "\x7fELF\x00\x01\xff",
		"f control":      strings.Repeat("\x01\xff", 100),
		"g nul.txt":      "a\x00b",
		"h longest.txt":  strings.Repeat("x", limit.EstimateFileBytes),
		"i longer.txt":   strings.Repeat("x", limit.EstimateFileBytes+1),
		"j twice.txt":    strings.Repeat("x", 2*limit.EstimateFileBytes+3),
		"k mark.txt":     "\xef\xbb\xbftea",
	})
	files, err := Find(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		text, skipped, _, err := f.Read(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 100 {
			text = "long"
		}
		got = append(got, text+"|"+skipped)
	}
	if diff := cmp.Diff([]string{
		"café|", "café|", "café|", "café €|", "|is not text", "|is not text", "|is not text: it holds U+0000", "long|",
		"|has 16777217 bytes: want at most 16777216", "|has 33554435 bytes: want at most 16777216", "\ufefftea|",
	}, got); diff != "" {
		t.Error(diff)
	}
	if err := os.Remove(files[0].Path); err != nil {
		t.Fatal(err)
	}
	if _, skipped, _, err := files[0].Read(t.Context(), ""); err != nil || skipped != "cannot be read: no such file or directory" {
		t.Errorf("a file that is gone: %q", skipped)
	}
}

// Requests end at a number of files and of bytes; a file that is bigger is alone.
func TestRequests_Split(t *testing.T) {
	files, err := Find(folder(t, map[string]string{
		"a.txt": "aa", "b.txt": "bb", "c.txt": "cc", "d.txt": strings.Repeat("d", 500), "e.txt": "e", "f": "\x00",
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		files, bytes int
		want         string
	}{
		{100, 1 << 20, "abcde"},
		{2, 1 << 20, "ab cd e"},
		{100, 100, "abc d e"},
		{100, 1, "a b c d e"},
	} {
		var got []string
		skipped := 0
		for r, err := range requests(t.Context(), files, "notes", c.files, c.bytes) {
			if err != nil {
				t.Fatal(err)
			}
			names := ""
			for _, f := range r.Files {
				names += strings.TrimSuffix(filepath.Base(f.Path), ".txt")
				if f.Kind != "notes" {
					t.Errorf("%s is %q", f.Path, f.Kind)
				}
			}
			got = append(got, names)
			skipped += len(r.Skipped)
		}
		if strings.Join(got, " ") != c.want || skipped != 1 {
			t.Errorf("%d files, %d bytes: %q, %d skipped", c.files, c.bytes, got, skipped)
		}
	}
}
