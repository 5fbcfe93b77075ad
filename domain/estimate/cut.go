package estimate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/limit"
)

// Kind is what a file is, which decides where it is cut.
type Kind string

// The kinds of files, as the API names them.
const (
	Email         Kind = "email"
	Chat          Kind = "chat"
	Transcript    Kind = "transcript"
	Table         Kind = "table"
	Records       Kind = "records"
	Code          Kind = "code"
	Documentation Kind = "documentation"
	Notes         Kind = "notes"
)

// Kinds lists every kind.
func Kinds() []Kind {
	return []Kind{Email, Chat, Transcript, Table, Records, Code, Documentation, Notes}
}

// KindNames returns the names of the kinds.
func KindNames() []string {
	names := make([]string, 0, len(Kinds()))
	for _, k := range Kinds() {
		names = append(names, string(k))
	}
	return names
}

// IsKind reports whether a name is that of a kind.
func IsKind(name string) bool { return slices.Contains(Kinds(), Kind(name)) }

// File is a file to be cut.
type File struct {
	// Path is the name under which the caller knows the file. It is part of the ids.
	Path string
	// Content is the text of the file in UTF-8.
	Content string
	// Kind skips the detection; "" detects.
	Kind Kind
	// Skipped is why the file has no text, "" if it has, and Guess a remark of how it was decoded, or nil.
	Skipped string
	Guess   *Remark
}

// Decoded returns a file of some bytes. The error is that of the context.
func Decoded(ctx context.Context, path string, kind Kind, raw []byte) (f File, err error) {
	f = File{Path: path, Kind: kind}
	f.Content, f.Guess, err = Text(ctx, path, kind, raw)
	if skipped, ok := errors.AsType[*Skip](err); ok {
		f.Skipped, err = skipped.Reason, nil
	}
	return f, err
}

// Point is a data point that an import would send. Its fields are within the limits of a send.
type Point struct {
	ID      string
	Content string
	// Label, Identity and Audience are "" for none.
	Label    string
	Identity string
	Audience string
	// At is in UTC, cut to microseconds; the zero time is none.
	At time.Time
	// Metadata is a JSON value, nil for none.
	Metadata json.RawMessage
}

// Skip is the reason why a file becomes no data points.
type Skip struct{ Reason string }

func (s *Skip) Error() string { return s.Reason }

func skip(format string, args ...any) error { return &Skip{fmt.Sprintf(format, args...)} }

// unparseable is the reason of a file that is not of its kind.
func unparseable(kind Kind, format string, args ...any) error {
	return skip("cannot be read as %s: %s", kind, fmt.Sprintf(format, args...))
}

// Origin is what a file was taken for.
type Origin struct {
	// Kind is "" for a file that was skipped before its kind was known.
	Kind Kind
	By   DetectedBy
	// Remarks are what was left out of it.
	Remarks []Remark
}

// Cut calls yield for each data point of a file, in the order of the file. Times without a zone are in
// zone. The error is a *Skip if the file becomes no data points: those that were yielded before do not
// count. Any other error is that of yield or of the context.
func Cut(ctx context.Context, f File, zone *time.Location, yield func(Point) error) (Origin, error) {
	switch {
	case f.Skipped != "":
		return Origin{Kind: f.Kind}, &Skip{f.Skipped}
	case len(f.Content) > limit.EstimateFileBytes:
		return Origin{Kind: f.Kind}, skip("has %d bytes: want at most %d", len(f.Content), limit.EstimateFileBytes)
	case strings.IndexByte(f.Content, 0) >= 0:
		return Origin{Kind: f.Kind}, skip("is not text: it holds U+0000")
	}
	w := watch{ctx: ctx, ended: ctx.Err()}
	text := w.normalize(f.Content)
	if w.ended != nil {
		return Origin{Kind: f.Kind}, w.ended
	}
	if strings.TrimSpace(text) == "" {
		return Origin{Kind: f.Kind}, skip("is empty or white space")
	}
	origin := Origin{Kind: f.Kind, By: Given}
	if f.Kind == "" {
		origin = detect(f.Path, text)
		if program := unreadExport(origin, text); program != "" {
			return origin, skip("looks like an export of %s, which is not read; with a given kind it is", program)
		}
	}
	c := &cut{
		watch: w, path: f.Path, text: text, zone: zone, yield: yield, most: maxGrowth*int64(len(text)) + growthSpare,
		base: baseOf(f.Path), ids: newIDs(f.Path), pathJSON: encodeJSON(map[string]string{"path": f.Path}),
	}
	if f.Guess != nil {
		c.remarks = append(c.remarks, *f.Guess)
	}
	err := cutters[origin.Kind](c)
	if c.ended != nil {
		return origin, c.ended // whatever the cutter made of a text that ended too early
	}
	if err != nil {
		return origin, err
	}
	if c.points == 0 {
		return origin, unparseable(origin.Kind, "it has nothing to remember")
	}
	origin.Remarks = c.remarks.list()
	return origin, nil
}

var cutters = map[Kind]func(*cut) error{
	Email: cutEmail, Chat: cutChat, Transcript: cutTranscript, Table: cutTable, Records: cutRecords, Code: cutCode,
	Documentation: cutDocumentation, Notes: cutNotes,
}

const (
	// maxGrowth bounds the content of all data points of a file, as a multiple of its size: the names of
	// columns are repeated in each row. growthSpare is for small files.
	maxGrowth   = 16
	growthSpare = 1 << 20
	// partBytes is the size beyond which text without natural breaks is cut into parts. The smallest
	// budget of a recall holds several of them.
	partBytes = 12_000
)

// cut is one file while it is cut.
type cut struct {
	watch
	path string
	// base is the name of the file as a label, pathJSON the path as metadata.
	base     string
	pathJSON json.RawMessage
	text     string // without a byte order mark, lines end with \n
	zone     *time.Location
	yield    func(Point) error

	ids ids
	// label is the last one, and fitted as it fits.
	label, fitted string
	// begin is the last text with which labels begin, and room how many characters fit after it, -1 for one that does not
	// fit itself.
	begin string
	room  int

	remarks remarks
	points  int
	// size and most are the content so far and its bound.
	size, most int64
}

// baseOf returns the name of a file without its folders and its extension, as a label.
func baseOf(file string) string {
	name := path.Base(strings.ReplaceAll(file, `\`, "/"))
	if ext := path.Ext(name); ext != name {
		name = strings.TrimSuffix(name, ext)
	}
	return fitName(name, limit.Label)
}

// id returns an id within the file, and within its limit.
func (c *cut) id(parts ...string) string {
	if len(parts) == 0 {
		return c.ids.of("")
	}
	return c.ids.of("#" + strings.Join(parts, "/"))
}

// emit yields a data point after it is brought within the limits of a send. Its id is one of id. Blank content yields
// nothing.
func (c *cut) emit(p Point) error {
	p.Content = strings.Trim(p.Content, "\n")
	if strings.TrimSpace(p.Content) == "" {
		return nil
	}
	if len(p.Content) > limit.ContentBytes {
		return skip("a data point would have %d bytes: want at most %d", len(p.Content), limit.ContentBytes)
	}
	if c.size += int64(len(p.Content)); c.size > c.most {
		return skip("its data points would have more than %d times its bytes", maxGrowth)
	}
	if p.Label != c.label {
		c.label, c.fitted = p.Label, fitName(p.Label, limit.Label)
	}
	p.Label = c.fitted
	p.Identity = fitName(p.Identity, limit.Identity)
	if p.At = fitTime(p.At); p.At.IsZero() {
		c.remarks.add(NoTime, p.ID)
	}
	if len(p.Metadata) > limit.MetadataBytes {
		p.Metadata = nil
		c.remarks.add(NoMetadata, p.ID)
	}
	if strings.ContainsRune(p.Content, utf8.RuneError) {
		c.remarks.add(BadBytes, p.ID)
	}
	c.points++
	if c.over(len(p.ID) + len(p.Content) + len(p.Label) + len(p.Metadata)) {
		return c.ended
	}
	return c.yield(p)
}

// metadata encodes pairs of a key and a value; empty values are left out. The path always comes first.
func (c *cut) metadata(pairs ...any) json.RawMessage {
	if len(pairs) == 0 {
		return c.pathJSON
	}
	var b strings.Builder
	b.Write(c.pathJSON[:len(c.pathJSON)-1])
	for i := 0; i+1 < len(pairs); i += 2 {
		switch v := pairs[i+1].(type) {
		case string:
			if v == "" {
				continue
			}
		case []string:
			if len(v) == 0 {
				continue
			}
		}
		b.WriteByte(',')
		b.Write(encodeJSON(pairs[i]))
		b.WriteByte(':')
		b.Write(encodeJSON(pairs[i+1]))
	}
	b.WriteByte('}')
	return json.RawMessage(b.String())
}

// checkBytes is how much is read or written between two checks of the context.
const checkBytes = 32 << 10

// watch checks the context of a cut as the work proceeds. Loops count their work by over, and end when it
// reports so. Cut returns the error, so that loops need none.
type watch struct {
	ctx context.Context
	// unchecked is the work since the last check.
	unchecked int
	ended     error
}

// over counts n bytes of work. It reports whether the context has ended.
func (w *watch) over(n int) bool {
	if w.unchecked += n; w.unchecked >= checkBytes && w.ended == nil {
		w.unchecked, w.ended = 0, w.ctx.Err()
	}
	return w.ended != nil
}

// line splits a text at its first line end. Both parts are "" once the context has ended.
func (w *watch) line(text string) (line, rest string) {
	for at := 0; at < len(text); {
		end := min(at+checkBytes, len(text))
		if i := strings.IndexByte(text[at:end], '\n'); i >= 0 {
			if w.over(i + 1) {
				return "", ""
			}
			return text[:at+i], text[at+i+1:]
		}
		if w.over(end - at) {
			return "", ""
		}
		at = end
	}
	return text, ""
}

// reader returns a reader for a parser. Its error is that of the context.
func (w *watch) reader(from io.Reader) io.Reader { return &watchedReader{w, from} }

type watchedReader struct {
	watch *watch
	from  io.Reader
}

func (r *watchedReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b[:min(len(b), checkBytes)])
	if r.watch.over(n) {
		return 0, r.watch.ended
	}
	return n, err
}

// normalize removes a byte order mark, and ends each line with \n.
func (w *watch) normalize(text string) string {
	return w.lineEnds(strings.ToValidUTF8(strings.TrimPrefix(text, byteOrderMark), "\ufffd"))
}

// lineEnds ends each line with \n.
func (w *watch) lineEnds(text string) string {
	if strings.IndexByte(text, '\r') < 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for text != "" && !w.over(min(len(text), checkBytes)) {
		end := min(checkBytes, len(text))
		if end < len(text) && text[end-1] == '\r' && text[end] == '\n' {
			end++
		}
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(text[:end], "\r\n", "\n"), "\r", "\n"))
		text = text[end:]
	}
	return b.String()
}

// RemarkCode names what was left out of a file, or is not certain.
type RemarkCode string

// What a cut remarks.
const (
	// NoTime counts data points without a time: a send gives them that of the import.
	NoTime RemarkCode = "no-time"
	// QuotedText counts messages without the text that they repeat of others.
	QuotedText RemarkCode = "quoted-text"
	// NoWords counts messages and entries that have no words.
	NoWords RemarkCode = "no-words"
	// NotText counts attachments, pictures and outputs that are no text.
	NotText RemarkCode = "not-text"
	// Unreadable counts parts of a file that are not in its form.
	Unreadable RemarkCode = "unreadable"
	// BadBytes counts data points with bytes that are no text in their charset.
	BadBytes RemarkCode = "bad-bytes"
	// GuessedCharset is the charset of a file that names none.
	GuessedCharset RemarkCode = "guessed-charset"
	// NoMetadata counts data points with more metadata than a send takes.
	NoMetadata RemarkCode = "metadata-dropped"
	// Repeated counts data points that equal one that is there.
	Repeated RemarkCode = "repeated"
	// ProgramLines counts lines of a chat that its program wrote.
	ProgramLines RemarkCode = "program-lines"
	// TooDeep counts messages with more parts, or deeper ones, than are read.
	TooDeep RemarkCode = "too-deep"
)

// remarkTexts are what a remark is for people, after its count, of one and of several.
var remarkTexts = map[RemarkCode][2]string{
	NoTime: {
		"data point without a time, which would get the time of the import",
		"data points without a time, which would get the time of the import",
	},
	QuotedText: {
		"message without the text that it quotes of an earlier one", "messages without the text that they quote of earlier ones",
	},
	NoWords: {
		"message or entry without words was left out", "messages or entries without words were left out",
	},
	NotText: {
		"attachment or output that is no text was left out", "attachments or outputs that are no text were left out",
	},
	Unreadable: {"part could not be read and was left out", "parts could not be read and were left out"},
	BadBytes:   {"data point with bytes that are no text (\ufffd)", "data points with bytes that are no text (\ufffd)"},
	NoMetadata: {
		"data point without its metadata, which is too big", "data points without their metadata, which is too big",
	},
	Repeated: {
		"data point was left out: it equals one that is there", "data points were left out: they equal ones that are there",
	},
	ProgramLines: {"line that the program wrote was left out", "lines that the program wrote were left out"},
	TooDeep:      {"message has more parts than are read", "messages have more parts than are read"},
}

// Remark is what was left out of a file, or is not certain.
type Remark struct {
	Code  RemarkCode
	Count int
	// First is the first place: an id of a data point, or a line. It may be "".
	First string
	// Text is all of it for people.
	Text string
}

// remarks are those of one file, one for each code.
type remarks []Remark

// maxFirst bounds the place of a remark.
const maxFirst = 200

// add counts a remark.
func (r *remarks) add(code RemarkCode, first string) {
	for i := range *r {
		if (*r)[i].Code == code {
			(*r)[i].Count++
			return
		}
	}
	*r = append(*r, Remark{Code: code, Count: 1, First: fitName(first, maxFirst)})
}

// list returns the remarks with their texts.
func (r remarks) list() []Remark {
	list := slices.Clone(r)
	for i := range list {
		m := &list[i]
		if m.Text != "" {
			continue
		}
		words := remarkTexts[m.Code]
		m.Text = fmt.Sprintf("%d %s", m.Count, words[min(m.Count, 2)-1])
		if m.First != "" {
			m.Text += "; the first: " + m.First
		}
	}
	return list
}
