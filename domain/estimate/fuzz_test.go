package estimate_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/estimate"
)

// fuzzKind cuts any text as a kind, under each of the extensions: what comes out can be sent, is the same
// again, and is bounded by what went in.
func fuzzKind(f *testing.F, kind estimate.Kind, extensions ...string) {
	f.Helper()
	for name, content := range hostile(500) {
		if strings.HasPrefix(name, string(kind)) {
			f.Add(content)
		}
	}
	root := filepath.Join("testdata", "files")
	if err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		f.Add(string(content))
		return err
	}); err != nil {
		f.Fatal(err)
	}
	zone := rome(f)
	f.Fuzz(func(t *testing.T, content string) {
		for _, ext := range extensions {
			for _, given := range []estimate.Kind{kind, ""} {
				file := estimate.File{Path: "2025/a" + ext, Content: content, Kind: given}
				points, reason := cutAll(t, file, zone)
				again, same := cutAll(t, file, zone)
				if diff := cmp.Diff(points, again); diff != "" || reason != same {
					t.Fatalf("a second cut differs: %q, %q\n%s", reason, same, diff)
				}
				if (reason == "") != (len(points) > 0) {
					t.Fatalf("%d data points, skipped: %q", len(points), reason)
				}
			}
		}
	})
}

// cutAll cuts a file, and checks what it becomes.
func cutAll(t *testing.T, f estimate.File, zone *time.Location) (points []estimate.Point, reason string) {
	t.Helper()
	size := 0
	_, err := estimate.Cut(t.Context(), f, zone, func(p estimate.Point) error {
		points = append(points, p)
		size += len(p.Content)
		return checkPoint(p)
	})
	if skipped, ok := errors.AsType[*estimate.Skip](err); ok {
		return nil, skipped.Reason
	}
	if err != nil {
		t.Fatalf("%s as %q: %v", f.Path, f.Kind, err)
	}
	if size > 64*len(f.Content)+2<<20 {
		t.Fatalf("%d bytes become %d", len(f.Content), size)
	}
	return points, ""
}

func FuzzEmail(f *testing.F)      { fuzzKind(f, estimate.Email, ".eml", ".mbox") }
func FuzzChat(f *testing.F)       { fuzzKind(f, estimate.Chat, ".txt", ".json", ".csv") }
func FuzzTranscript(f *testing.F) { fuzzKind(f, estimate.Transcript, ".vtt", ".txt") }
func FuzzTable(f *testing.F)      { fuzzKind(f, estimate.Table, ".csv", ".tsv") }
func FuzzRecords(f *testing.F)    { fuzzKind(f, estimate.Records, ".json", ".jsonl") }
func FuzzCode(f *testing.F)       { fuzzKind(f, estimate.Code, ".go", ".c", ".ts", ".java", ".py") }
func FuzzMarkdown(f *testing.F)   { fuzzKind(f, estimate.Documentation, ".md") }
func FuzzAsciiDoc(f *testing.F)   { fuzzKind(f, estimate.Documentation, ".adoc") }
func FuzzHTML(f *testing.F)       { fuzzKind(f, estimate.Documentation, ".html") }
func FuzzNotes(f *testing.F)      { fuzzKind(f, estimate.Notes, ".txt", "") }
