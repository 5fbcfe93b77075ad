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
	"github.com/annals-project/annals/internal/hostilefiles"
)

// shaped makes a longer text of one: it is repeated, nested, with its first half to open a level and its second
// half to close it, or one long line.
func shaped(content string, shape uint8, times uint16) string {
	n := min(int(times), fuzzBytes/max(len(content), 1))
	half := len(content) / 2
	switch shape % 4 {
	case 1:
		return strings.Repeat(content, n)
	case 2:
		return strings.Repeat(content[:half], n) + strings.Repeat(content[half:], n)
	case 3:
		return content + strings.Repeat(strings.ReplaceAll(content, "\n", " "), n)
	default:
		return content
	}
}

// fuzzBytes bounds a text that is made of another.
const fuzzBytes = 64 << 10

// fuzzKind cuts any text as a kind, under each of the extensions: what comes out can be sent, is the same
// again, and is bounded by what went in; and so are the checks of the context.
func fuzzKind(f *testing.F, kind estimate.Kind, extensions ...string) {
	f.Helper()
	for name, content := range hostile(500) {
		if strings.HasPrefix(name, string(kind)) {
			for shape := range uint8(4) {
				f.Add(content, shape, uint16(3))
			}
		}
	}
	for _, hostile := range hostilefiles.Make(5, 500) {
		if hostile.Kind == kind {
			f.Add(hostile.Content, uint8(0), uint16(0))
		}
	}
	for shape, content := range map[uint8]string{1: "a: b\n", 2: `{"chats":{"list":[]}}`, 3: "<a b>"} {
		f.Add(content, shape, uint16(2000))
	}
	root := filepath.Join("testdata", "files")
	if err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		f.Add(string(content), uint8(0), uint16(0))
		return err
	}); err != nil {
		f.Fatal(err)
	}
	zone := rome(f)
	f.Fuzz(func(t *testing.T, content string, shape uint8, times uint16) {
		content = shaped(content, shape, times)
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
	ctx := &checked{Context: t.Context()}
	_, err := estimate.Cut(ctx, f, zone, func(p estimate.Point) error {
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
	// A table is read three times, a mail once for each level, and what is made counts, too.
	if most := (40*len(f.Content)+2*size+2000*len(points))/(32<<10) + 8; ctx.checks > most {
		t.Fatalf("%d bytes become %d data points of %d bytes after %d checks: want at most %d",
			len(f.Content), len(points), size, ctx.checks, most)
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
func FuzzRecords(f *testing.F)    { fuzzKind(f, estimate.Records, ".json", ".jsonl", ".ics", ".vcf") }
func FuzzCode(f *testing.F)       { fuzzKind(f, estimate.Code, ".go", ".c", ".ts", ".java", ".py") }
func FuzzNotebook(f *testing.F)   { fuzzKind(f, estimate.Documentation, ".ipynb") }
func FuzzMarkdown(f *testing.F)   { fuzzKind(f, estimate.Documentation, ".md") }
func FuzzAsciiDoc(f *testing.F)   { fuzzKind(f, estimate.Documentation, ".adoc") }
func FuzzHTML(f *testing.F)       { fuzzKind(f, estimate.Documentation, ".html") }
func FuzzNotes(f *testing.F)      { fuzzKind(f, estimate.Notes, ".txt", "") }
