package web

import (
	"encoding/csv"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/annals-project/annals/internal/cursor"
)

// With is the URL of the page with some parameters of its query changed, names and values in turn; an empty value drops
// the parameter. Unless it names a cursor, it goes back to the first page.
func (r *Request) With(pairs ...string) string {
	query := r.URL.Query()
	for _, name := range []string{"after", "before", "done", "format"} {
		query.Del(name)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			query.Del(pairs[i])
		} else {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return (&url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: query.Encode()}).String()
}

// Pager are the links of a list that is read by cursors. Next and Previous are cursors, "" for none. Total is a count,
// or what Total returns.
type Pager struct {
	Next     string `json:"next,omitempty"`
	Previous string `json:"previous,omitempty"`
	Total    string `json:"total,omitempty"`
}

// Trail fills in the links of a list that is read forwards only, with URLs in place of cursors. The parameter after of
// the query is the cursor of the page, the parameter before those of the pages before it. end is nil on the last page.
func (r *Request) Trail(p *Pager, after, before string, end *cursor.Cursor) {
	query := r.URL.Query()
	at, passed := query.Get(after), query.Get(before)
	if end != nil {
		p.Next = r.With(after, end.String(), before, passed[:min(len(passed), maxTrail)]+"."+at)
	}
	if n := strings.LastIndexByte(passed, '.'); n >= 0 {
		p.Previous = r.With(after, passed[n+1:], before, passed[:n])
	}
}

// maxTrail bounds the cursors of the pages before, in characters: after about a hundred pages, previous skips some.
const maxTrail = 4_000

// MaxTotal is up to which number lists count what they hold.
const MaxTotal = 10_000

// Total shows a count that was read up to one more than MaxTotal.
func Total(n int) string {
	if n > MaxTotal {
		return "more than " + count(MaxTotal)
	}
	return count(n)
}

// Rows writes a list as CSV. Spreadsheets run what looks like a formula, so such a cell gets a quote mark.
func (r *Request) Rows(name string, columns []string, rows iter.Seq2[[]string, error]) error {
	return r.Stream("text/csv; charset=utf-8", name+".csv", func(w io.Writer) error {
		out := csv.NewWriter(w)
		err := out.Write(columns)
		for row, failed := range rows {
			for i := range row {
				row[i] = safeCell(row[i])
			}
			if err = errors.Join(err, failed); err == nil {
				err = out.Write(row)
			}
			if err != nil {
				return err
			}
		}
		out.Flush()
		return errors.Join(err, out.Error())
	})
}

// Stream writes an answer of any length, as a file to save if it has a name. An error after the first byte breaks the
// answer off, so that the reader notices.
func (r *Request) Stream(contentType, file string, write func(io.Writer) error) error {
	out := &stream{r: r, contentType: contentType, file: file}
	err := write(out)
	if err == nil {
		_, err = out.Write(nil)
	}
	if err != nil && out.begun {
		r.site.Logger.WarnContext(r.Context(), "page aborted", "requestId", r.ID(), "route", r.route.Pattern, "err", err)
		panic(http.ErrAbortHandler)
	}
	return err
}

// stream writes the headers before the first byte.
type stream struct {
	r                 *Request
	contentType, file string
	begun             bool
}

// Write implements io.Writer.
func (s *stream) Write(p []byte) (int, error) {
	if !s.begun {
		s.begun = true
		if s.file != "" {
			s.r.w.Header().Set("Content-Disposition", `attachment; filename="`+notInFiles.ReplaceAllString(s.file, "-")+`"`)
		}
		s.r.header(s.contentType, 0)
	}
	return s.r.w.Write(p)
}

// notInFiles is what not every file system and header takes in a name.
var notInFiles = regexp.MustCompile(`[^-_.0-9A-Za-z]`)

// safeCell returns a cell that no spreadsheet runs as a formula.
func safeCell(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}
