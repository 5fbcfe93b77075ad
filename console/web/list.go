package web

import (
	"encoding/csv"
	"iter"
	"net/url"
	"strings"
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

// MaxTotal is up to which number lists count what they hold.
const MaxTotal = 10_000

// Total shows a count that was read up to one more than MaxTotal.
func Total(n int) string {
	if n > MaxTotal {
		return "more than " + count(MaxTotal)
	}
	return count(n)
}

// Rows writes a list as CSV. Spreadsheets run what looks like a formula, so such a cell gets a quote mark. An error
// after the first row breaks the answer off, so that the reader notices.
func (r *Request) Rows(name string, columns []string, rows iter.Seq2[[]string, error]) error {
	r.w.Header().Set("Content-Disposition", `attachment; filename="`+fileName(name)+`.csv"`)
	r.header("text/csv; charset=utf-8", 0)
	out := csv.NewWriter(r.w)
	if err := out.Write(columns); err != nil {
		return nil //nolint:nilerr // the browser left
	}
	for row, err := range rows {
		if err != nil {
			panic(abort(r, err))
		}
		for i := range row {
			row[i] = SafeCell(row[i])
		}
		if err := out.Write(row); err != nil {
			return nil //nolint:nilerr // the browser left
		}
	}
	out.Flush()
	return nil
}

// SafeCell returns a cell that no spreadsheet runs as a formula.
func SafeCell(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

// fileName keeps of a name what any file system and header takes.
func fileName(name string) string {
	return strings.Map(func(c rune) rune {
		if c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return c
		}
		return '-'
	}, name)
}
