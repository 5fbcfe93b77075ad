package estimate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/limit"
)

var update = flag.Bool("update", false, "write the golden files")

// rome is a zone with summer time.
func rome(t testing.TB) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Rome")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// goldenPoint is a data point as a golden file shows it.
type goldenPoint struct {
	ID       string          `json:"id"`
	Label    string          `json:"label,omitempty"`
	Time     string          `json:"timestamp,omitempty"`
	Identity string          `json:"identity,omitempty"`
	Audience string          `json:"audience,omitempty"`
	Content  string          `json:"content"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// goldenOf renders what a file becomes: its kind, then a data point a line.
func goldenOf(t *testing.T, f estimate.File) []byte {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	write := func(v any) {
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	origin, err := estimate.Cut(t.Context(), f, rome(t), func(p estimate.Point) error {
		g := goldenPoint{p.ID, p.Label, "", p.Identity, p.Audience, p.Content, p.Metadata}
		if !p.At.IsZero() {
			g.Time = p.At.Format(time.RFC3339Nano)
		}
		if err := checkPoint(p); err != nil {
			t.Errorf("%s: %v", p.ID, err)
		}
		write(g)
		return nil
	})
	head := map[string]any{"kind": origin.Kind, "detectedBy": origin.By}
	if skipped, ok := errors.AsType[*estimate.Skip](err); ok {
		head["skipped"] = skipped.Reason
		out.Reset()
	} else if err != nil {
		t.Fatal(err)
	}
	points := out.String()
	out.Reset()
	write(head)
	out.WriteString(points)
	return out.Bytes()
}

// checkPoint returns what a send would refuse.
func checkPoint(p estimate.Point) error {
	name := func(what, text string, least, most int) error {
		n := utf8.RuneCountInString(text)
		if n < least || n > most || strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return fmt.Errorf("%s is %.200q", what, text)
		}
		return nil
	}
	err := errors.Join(
		name("id", p.ID, 1, limit.SourceID), name("label", p.Label, 0, limit.Label),
		name("identity", p.Identity, 0, limit.Identity),
	)
	if strings.TrimSpace(p.Content) == "" || len(p.Content) > limit.ContentBytes || !utf8.ValidString(p.Content) {
		err = errors.Join(err, fmt.Errorf("the content is %.100q", p.Content))
	}
	if p.Audience != "" && !audience.ValidSlug(p.Audience) {
		err = errors.Join(err, fmt.Errorf("the audience is %q", p.Audience))
	}
	if p.Metadata != nil && (!json.Valid(p.Metadata) || len(p.Metadata) > limit.MetadataBytes) {
		err = errors.Join(err, fmt.Errorf("the metadata is %.200s", p.Metadata))
	}
	if y := p.At.Year(); !p.At.IsZero() && (y < 1 || y > 9999 || p.At.Location() != time.UTC) {
		err = errors.Join(err, fmt.Errorf("the time is %s", p.At))
	}
	return err
}

// Each file under testdata/files becomes what testdata/golden records.
func TestCut_Golden(t *testing.T) {
	root := filepath.Join("testdata", "files")
	kinds := map[estimate.Kind]int{}
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f := estimate.File{Path: name, Content: string(content)}
			got := goldenOf(t, f)
			if again := goldenOf(t, f); !bytes.Equal(got, again) {
				t.Errorf("a second cut differs:\n%s", cmp.Diff(string(got), string(again)))
			}
			golden := filepath.Join("testdata", "golden", strings.ReplaceAll(name, "/", "__")+".json")
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			var head struct{ Kind estimate.Kind }
			if err := json.NewDecoder(bytes.NewReader(got)).Decode(&head); err != nil {
				t.Fatal(err)
			}
			kinds[head.Kind]++
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range estimate.Kinds() {
		if kinds[kind] == 0 {
			t.Errorf("no file is %s", kind)
		}
	}
}

// skipReason cuts a file, and returns why it is skipped, "" if it is not.
func skipReason(t *testing.T, f estimate.File) string {
	t.Helper()
	_, err := estimate.Cut(t.Context(), f, time.UTC, func(estimate.Point) error { return nil })
	if skipped, ok := errors.AsType[*estimate.Skip](err); ok {
		return skipped.Reason
	}
	if err != nil {
		t.Fatal(err)
	}
	return ""
}
