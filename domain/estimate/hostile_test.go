package estimate_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/internal/hostiletest"
)

var hostileBytes = flag.Int("hostile-bytes", 1<<17, "size of each hostile file")

// hostile returns files that are made to take time or memory, each of about size bytes, by name. The name
// begins with the kind, and ends with the extension.
func hostile(size int) map[string]string {
	rep := func(text string) string { return strings.Repeat(text, max(1, size/len(text))) }
	each := func(format string) string {
		var b strings.Builder
		for n := 0; b.Len() < size; n++ {
			_, _ = fmt.Fprintf(&b, format, n)
		}
		return b.String()
	}
	const head = "From: a@example.com\nTo: b@example.com\nSubject: x\n"
	nested := func(depth int) string {
		var b strings.Builder
		b.WriteString(head + "Content-Type: multipart/mixed; boundary=b0\n\n")
		for n := range depth {
			_, _ = fmt.Fprintf(&b, "--b%d\nContent-Type: multipart/mixed; boundary=b%d\n\n", n, n+1)
		}
		return b.String() + rep("tea ")
	}
	return map[string]string{
		"email nested multiparts.eml":      nested(size / 100),
		"email one boundary.eml":           head + "Content-Type: multipart/mixed; boundary=b\n\n" + rep("--b\nContent-Type: multipart/mixed; boundary=b\n\n"),
		"email many headers.eml":           head + each("X-%d: y\n") + "\ntea",
		"email folded header.eml":          head + "X: y\n" + rep(" y\n") + "\ntea",
		"email long header.eml":            head + "X: " + rep("y") + "\n\ntea",
		"email encoded words.eml":          "From: a@example.com\nTo: b@example.com\nSubject: " + rep("=?utf-8?q?=C3?= ") + "\n\ntea",
		"email half an encoded word.eml":   "From: a@example.com\nTo: b@example.com\nSubject: " + rep("=?utf-8?") + "\n\ntea",
		"email addresses.eml":              "Subject: x\nTo: b\nFrom: " + rep("a@b,") + "\n\ntea",
		"email comments.eml":               "Subject: x\nTo: b\nFrom: " + rep("(") + "\n\ntea",
		"email parameters.eml":             head + "Content-Type: text/plain" + rep("; a*0=b") + "\n\ntea",
		"email empty parts.eml":            head + "Content-Type: multipart/mixed; boundary=b\n\n" + rep("--b\n"),
		"email dashes.eml":                 head + "Content-Type: multipart/mixed; boundary=-\n\n" + rep("-"),
		"email attached messages.eml":      head + "Content-Type: message/rfc822\n\n" + rep("From: a\nContent-Type: message/rfc822\n\n"),
		"email base64.eml":                 head + "Content-Transfer-Encoding: base64\n\n" + rep("YWFh\n"),
		"email quoted-printable.eml":       head + "Content-Transfer-Encoding: quoted-printable\n\n" + rep("=\n=41"),
		"email long quoted-printable.eml":  head + "Content-Transfer-Encoding: quoted-printable\n\n" + rep("=41"),
		"email wrong quoted-printable.eml": head + "Content-Transfer-Encoding: quoted-printable\n\n" + rep("=ZZ\n"),
		"email quotes.eml":                 head + "\n" + rep("> \n"),
		"email attributions.eml":           head + "\n" + rep("On a wrote:\n> b\nc\n"),
		"email half attributions.eml":      head + "\n" + rep("On \n"),
		"email underscores.eml":            head + "\n" + rep(strings.Repeat("_", 30)+"\n"),
		"email one underscore.eml":         head + "\n" + rep("_"),
		"email outlook.eml":                head + "\n" + rep("From: a\nSent: b\n"),
		"email html blockquotes.eml":       head + "Content-Type: text/html\n\n" + rep("<blockquote>"),
		"email html divisions.eml":         head + "Content-Type: text/html\n\n" + rep("<div class=\"gmail_quote\">"),
		"email mailbox.mbox":               rep("From a@b Mon May 12 08:15:00 2025\nFrom: a\nTo: b\n\ntea\n\n"),
		"email from lines.mbox":            "From a@b Mon May 12 08:15:00 2025\nFrom: a\nTo: b\n\n" + rep("\nFrom a 10:00"),
		"email quoted from lines.mbox":     "From a@b Mon May 12 08:15:00 2025\nFrom: a\nTo: b\n\n" + rep("\n>>>>From a"),
		"email charset.eml":                head + "Content-Type: text/plain; charset=iso-2022-jp\n\n" + rep("\x1b$B"),
		"email unknown zones.mbox":         rep("From a@b Mon May 12 08:15:00 2025\nFrom: a\nDate: Mon, 12 May 2025 08:15 QQQ\n\ntea\n\n"),
		"email many attachments.eml":       head + "Content-Type: multipart/mixed; boundary=b\n\n" + rep("--b\nContent-Type: image/png; name=p.png\n\nx\n"),
		"email alternatives.eml":           head + "Content-Type: multipart/alternative; boundary=b\n\n" + rep("--b\nContent-Type: text/html\n\n<p>x\n"),
		"email blocks.eml":                 head + "In-Reply-To: <x>\n\n" + rep("From: a\nDate: 2025\n"),
		"email replies.eml":                head + "In-Reply-To: <x>\n\n" + rep("On 1 May 2025, 10:00, a wrote:\nb\n"),
		"records calendar.ics":             "BEGIN:VCALENDAR\n" + rep("BEGIN:VEVENT\nSUMMARY:x\nEND:VEVENT\n"),
		"records open events.ics":          "BEGIN:VCALENDAR\n" + rep("BEGIN:VEVENT\n"),
		"records folded.ics":               "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:x\n" + rep(" y\n"),
		"records attendees.ics":            "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:x\n" + rep("ATTENDEE;CN=a:mailto:a@b\n"),
		"records parameters.ics":           "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY" + rep(";A=b") + ":x\n",
		"records descriptions.ics":         "BEGIN:VCALENDAR\nBEGIN:VEVENT\n" + rep("COMMENT:x\n"),
		"records cards.vcf":                rep("BEGIN:VCARD\nFN:a\nTEL:1\nEND:VCARD\n"),
		"records soft lines.vcf":           "BEGIN:VCARD\nFN:a\nNOTE;ENCODING=QUOTED-PRINTABLE:x=\n" + rep("=41=\n"),
		"records notes.vcf":                "BEGIN:VCARD\nFN:a\n" + rep("NOTE:x\n"),
		"records types.json":               "[" + strings.TrimSuffix(rep(`{"_id":{"$oid":"a"},"d":{"$date":{"$numberLong":"1"}}},`), ",") + "]",
		"documentation notebook.ipynb":     `{"cells":[` + strings.TrimSuffix(rep(`{"cell_type":"code","source":["x"],"outputs":[{"text":"y"}]},`), ",") + `]}`,
		"documentation fences.ipynb":       `{"cells":[{"cell_type":"code","source":"` + rep("`") + `"}]}`,
		"documentation nested.ipynb":       `{"cells":` + rep("["),
		"documentation front list.md":      "---\na: " + rep("[") + "\n---\ntea",
		"documentation front alias.md":     "---\na: &a [x]\n" + rep("b: *a\n") + "---\ntea",
		"chat brackets.txt":                rep("["),
		"chat digits.txt":                  rep("1"),
		"chat one message.txt":             "[12/05/2025, 10:15] Ana: " + rep("tea "),
		"chat empty messages.txt":          rep("[12/05/2025, 10:15] Ana:\n"),
		"chat days.txt":                    each("[%d-05-12 10:15] Ana: x\n"),
		"chat backwards.txt":               rep("[13/05/2025, 10:15] Ana: x\n[12/05/2025, 10:15] Ana: x\n"),
		"chat dashes.txt":                  rep("1 - "),
		"chat angles.txt":                  rep("1 <"),
		"chat telegram.json":               `{"name":"a","from_id":1,"messages":[` + strings.TrimSuffix(rep(`{"from":"a","text":["b",{"text":"c"}]},`), ",") + `]}`,
		"chat telegram pieces.json":        `{"name":"a","from_id":1,"messages":[{"from":"a","text":[` + strings.TrimSuffix(rep(`"b",`), ",") + `]}]}`,
		"chat telegram chats.json":         `{"personal_information":{},"chats":{"list":[` + strings.TrimSuffix(rep(`{"messages":[{"from":"a","text":"b"}]},`), ",") + `]}}`,
		"chat slack marks.json":            `[{"type":"message","user":"U","ts":"1747044900.0","text":"` + rep("<") + `"}]`,
		"chat slack users.json":            "[" + strings.TrimSuffix(each(`{"type":"message","user":"U%d","ts":"1747044900.0","text":"<@U1>","user_profile":{"name":"a"}},`), ",") + "]",
		"chat nested.json":                 `{"guild":` + rep(`{"a":`),
		"transcript timings.vtt":           "WEBVTT\n\n" + rep("00:01.000 --> 00:02.000\n"),
		"transcript arrows.vtt":            "WEBVTT\n\n" + rep("-->"),
		"transcript tags.vtt":              "WEBVTT\n\n00:01.000 --> 00:02.000\n" + rep("<v a>"),
		"transcript open tags.vtt":         "WEBVTT\n\n00:01.000 --> 00:02.000\n" + rep("<"),
		"transcript one cue.srt":           "1\n00:00:01,000 --> 00:00:02,000\n" + rep("a"),
		"transcript cues.srt":              each("1\n00:00:01,000 --> 00:00:02,000\n%d\n\n"),
		"transcript speakers.txt":          each("A%d: b\n"),
		"transcript one speaker.txt":       "Ana: a\nBo: b\nAna: a\nBo: b\nAna: " + rep("a\n"),
		"transcript colons.txt":            rep(":"),
		"transcript names.txt":             rep("A a "),
		"transcript clocks.txt":            rep("1:00:"),
		"table one row.csv":                "a,b\n" + rep("x,"),
		"table one value.csv":              "a,b\n" + rep("x"),
		"table quotes.csv":                 "a,b\n" + rep(`"`),
		"table open quotes.csv":            "a,b\n" + rep("\"\n"),
		"table quoted lines.csv":           "a,b\n\"" + rep("x\n"),
		"table header.csv":                 rep("a,"),
		"table long header.csv":            rep("a") + ",b\n1,2\n",
		"table wide.csv":                   strings.Repeat("abcdefghijkl,", 999) + "z\n" + rep(strings.Repeat("1,", 999)+"1\n"),
		"table empty rows.csv":             "a,b\n" + rep(",\n"),
		"table same rows.csv":              "a,b\n" + rep("1,2\n"),
		"table tabs.tsv":                   rep("\t"),
		"table dates.csv":                  "date,b\n" + rep("Monday the first of Octember 12:00,2\n"),
		"records nested.json":              rep("["),
		"records nested objects.json":      rep(`{"a":`),
		"records deep.json":                "[" + strings.Repeat(`{"a":[`, 4000) + `"` + rep("x") + `"` + strings.Repeat("]}", 4000) + "]",
		"records deep and wide.json":       "[" + strings.Repeat(`{"abcdefgh":`, 30) + "[" + strings.TrimSuffix(rep(`"x",`), ",") + "]" + strings.Repeat("}", 30) + "]",
		"records numbers.json":             "[" + rep("1,") + "1]",
		"records empty.json":               "[" + rep("{},") + "{}]",
		"records fields.json":              "[{" + strings.TrimSuffix(each(`"a%d":1,`), ",") + "}]",
		"records names.json":               "[{" + strings.TrimSuffix(rep(`"`+strings.Repeat("n", 1000)+`":{"b":1},`), ",") + "}]",
		"records lines.jsonl":              rep("{\"a\":1}\n"),
		"records open string.json":         `["` + rep("x"),
		"records escapes.json":             `["` + rep(`\u00e9\\`) + `"]`,
		"records people.json":              "[" + strings.TrimSuffix(rep(`{"author":{"x":{"name":1}}},`), ",") + "]",
		"records lists.json":               `{"a":[{}],` + strings.TrimSuffix(each(`"b%d":[{}],`), ",") + "}",
		"code functions.go":                rep("func a() {\n"),
		"code one line.go":                 "func a" + rep("a"),
		"code comments.go":                 rep("// a\n"),
		"code lines.c":                     rep("a b(\n"),
		"code words.js":                    rep("const a = ("),
		"code annotations.java":            rep("@a ") + "\n" + rep("@a\n"),
		"code types.cs":                    rep(strings.Repeat("a ", 140) + "\n"),
		"code rust.rs":                     rep("pub async const unsafe " + "\n"),
		"code sql.sql":                     rep("create or replace "),
		"documentation marks.md":           rep("#"),
		"documentation headings.md":        rep("# \n"),
		"documentation named.md":           each("# %d\n"),
		"documentation deep.md":            rep("# a\n## b\n### c\n#### d\n##### e\n###### f\n"),
		"documentation fences.md":          rep("```\n"),
		"documentation comments.md":        rep("<!--\n"),
		"documentation underlines.md":      rep("a\n=\n"),
		"documentation front matter.md":    "---\n" + rep("a: b\n"),
		"documentation long heading.md":    "# " + rep("a "),
		"documentation equals.adoc":        rep("= "),
		"documentation blocks.adoc":        rep("----\n====\n"),
		"documentation sections.adoc":      each("== %d\n"),
		"documentation headings.html":      rep("<h1>"),
		"documentation closed.html":        each("<h2>%d</h2>"),
		"documentation nested.html":        rep("<div>"),
		"documentation angles.html":        rep("<"),
		"documentation attributes.html":    "<meta " + rep("a=b ") + ">tea",
		"documentation metas.html":         rep("<meta name=author content=a>") + "tea",
		"documentation hidden.html":        rep("<nav>"),
		"documentation comments.html":      rep("<!--"),
		"documentation entities.html":      rep("&amp;&#0;&"),
		"documentation spaces.html":        rep("<p> </p>"),
		"documentation pre.html":           "<pre>" + rep("\n"),
		"notes one word.txt":               rep("x"),
		"notes accents.txt":                rep("é"),
		"notes lines.txt":                  "a" + rep("\n") + "b",
		"notes marks.txt":                  rep("\u0301"),
		"notes returns.txt":                rep("a\r"),
		"notes broken UTF-8.txt":           rep("\xff\xfe"),
	}
}

// hostileFiles are the files of hostile.
func hostileFiles(size int) (files []estimate.File) {
	for name, content := range hostile(size) {
		kind, _, _ := strings.Cut(name, " ")
		files = append(files, estimate.File{Path: name, Content: content, Kind: estimate.Kind(kind)})
	}
	return files
}

// No file takes time that grows faster than its size, or memory that is a large multiple of it. A file that
// took quadratic time would not end before the deadline of the test.
func TestCut_Hostile(t *testing.T) {
	size := *hostileBytes
	if testing.Short() {
		size /= 8 // for the race detector, which also keeps regular expressions from reusing memory
	}
	for _, f := range append(shortPaths(hostiletest.Files(3, size)), hostileFiles(size)...) {
		t.Run(f.Path, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began, points := time.Now(), 0
			_, err := estimate.Cut(t.Context(), f, time.UTC, func(p estimate.Point) error {
				points++
				return checkPoint(p)
			})
			runtime.ReadMemStats(&after)
			reason, _ := errors.AsType[*estimate.Skip](err)
			if err != nil && reason == nil {
				t.Error(err)
			}
			allocated := after.TotalAlloc - before.TotalAlloc
			t.Logf("%v, %d MiB allocated, %d data points, %v", time.Since(began).Round(time.Millisecond), allocated>>20, points, err)
			// What each data point takes is freed as it is passed on: most of this is never in use at once.
			if most := 600*uint64(len(f.Content)) + 64<<20; allocated > most {
				t.Errorf("%d MiB are allocated: want at most %d", allocated>>20, most>>20)
			}
			// The file may also be of a kind that it does not look like.
			f.Kind = ""
			if _, err := estimate.Cut(t.Context(), f, time.UTC, func(estimate.Point) error { return nil }); err != nil {
				if _, ok := errors.AsType[*estimate.Skip](err); !ok {
					t.Error(err)
				}
			}
		})
	}
}

// The hostile files are of every kind and every shape, and the same for the same seed.
func TestHostileFiles(t *testing.T) {
	made := map[string]bool{}
	files := hostiletest.Files(7, 4096)
	for _, f := range files {
		if len(f.Content) > 8192 || !estimate.IsKind(string(f.Kind)) {
			t.Errorf("%s has %d bytes and kind %q", f.Path, len(f.Content), f.Kind)
		}
		for _, shape := range hostiletest.Shapes() {
			if strings.Contains(f.Path, string(f.Kind)+" "+shape) {
				made[string(f.Kind)+" "+shape] = true
			}
		}
	}
	if want := len(estimate.Kinds()) * len(hostiletest.Shapes()); len(made) != want {
		t.Errorf("%d kinds and shapes: want %d", len(made), want)
	}
	if diff := cmp.Diff(files, hostiletest.Files(7, 4096)); diff != "" {
		t.Error(diff)
	}
}

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
	for _, hostile := range hostiletest.Files(5, 500) {
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
