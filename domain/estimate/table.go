package estimate

import (
	"cmp"
	"encoding/csv"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/limit"
)

const (
	// maxColumns and maxColumnName bound what is repeated in each row.
	maxColumns    = 1000
	maxColumnName = 100
)

// cutTable cuts a table with a header: one data point for each row.
func cutTable(c *cut) error {
	t := &table{cut: c, rows: c.rows(separator(c.text)), names: newNames()}
	if err := t.readHeader(); err != nil {
		return err
	}
	return t.each()
}

// separator returns the character between the columns of the first line.
func separator(text string) rune {
	line, _ := firstLine(text)
	best, most := ',', 0
	quoted := false
	counts := map[rune]int{}
	for _, r := range line[:min(len(line), headBytes)] {
		switch {
		case r == '"':
			quoted = !quoted
		case quoted:
		case r == ',' || r == ';' || r == '\t' || r == '|':
			counts[r]++
			if counts[r] > most || counts[r] == most && r == '\t' {
				best, most = r, counts[r]
			}
		}
	}
	return best
}

// table is a table while it is cut.
type table struct {
	cut    *cut
	rows   rowReader
	header []string
	// The columns with a meaning, -1 for none.
	id, time, author, label, audience int
	monthFirst                        bool
	names                             names
}

func (t *table) readHeader() error {
	header, err := t.rows()
	if err != nil {
		return unparseable(Table, "it has no header")
	}
	if len(header) > maxColumns {
		return unparseable(Table, "it has more than %d columns", maxColumns)
	}
	t.header = make([]string, len(header))
	names := 0
	for i, name := range header {
		t.header[i] = fitName(name, maxColumnName)
		if t.header[i] == "" {
			t.header[i] = "column " + strconv.Itoa(i+1)
		} else {
			names++
		}
	}
	if names == 0 {
		return unparseable(Table, "its header names no column")
	}
	t.id, t.time = columnOf(t.header, idNames), columnOf(t.header, timeNames)
	t.author, t.label = columnOf(t.header, authorNames), columnOf(t.header, labelNames)
	t.audience = columnOf(t.header, audienceNames)
	t.monthFirst = t.time >= 0 && t.cut.learnOrder()
	return nil
}

func (t *table) each() error {
	for {
		row, err := t.rows()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unparseable(Table, "%v", err)
		}
		if err := t.row(row); err != nil {
			return err
		}
	}
}

// row makes the data point of a row: a line "name: value" for each value that is not empty.
func (t *table) row(row []string) error {
	if len(row) > maxColumns {
		return unparseable(Table, "a row has more than %d columns", maxColumns)
	}
	var b strings.Builder
	for i, value := range row {
		value = strings.TrimSpace(value)
		if value == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if i < len(t.header) {
			b.WriteString(t.header[i])
		} else {
			b.WriteString("column " + strconv.Itoa(i+1))
		}
		b.WriteString(": ")
		b.WriteString(value)
	}
	if b.Len() == 0 {
		return nil // it needs no name
	}
	p := Point{
		Content: b.String(), Label: t.field(row, t.label), Identity: t.field(row, t.author), Metadata: t.cut.metadata(),
	}
	p.Label = cmp.Or(p.Label, t.cut.base)
	p.At, _ = timeOf(t.field(row, t.time), t.cut.zone, t.monthFirst)
	if slug := t.field(row, t.audience); limit.IsAudienceSlug(slug) {
		p.Audience = slug
	}
	p.ID = t.cut.id(t.names.unique(t.field(row, t.id), p.Content))
	return t.cut.emit(p)
}

// field returns a value of a row, "" for a column that is not there.
func (t *table) field(row []string, column int) string {
	if column < 0 || column >= len(row) {
		return ""
	}
	return strings.TrimSpace(row[column])
}

// The names of columns and fields with a meaning, in the order in which they are looked for. Case, white
// space, dashes and underscores do not count.
var (
	idNames = []string{
		"id", "uuid", "guid", "key", "issuekey", "ticketid", "ticket", "messageid", "recordid", "rowid", "externalid",
	}
	timeNames = []string{
		"timestamp", "datetime", "date", "time", "createdat", "created", "sentat", "occurredat", "createdtime",
		"createddate", "creationdate", "publishedat", "updatedat", "updated", "lastmodified", "ts",
	}
	authorNames = []string{
		"author", "identity", "sender", "user", "username", "from", "createdby", "reporter", "speaker", "submitter",
		"authorname", "authorid",
	}
	labelNames    = []string{"label", "title", "subject", "summary", "headline", "name"}
	audienceNames = []string{"audience"}
)

// plainName is a name without what does not count.
func plainName(name string) string {
	if len(name) > maxColumnName {
		return ""
	}
	return strings.ToLower(strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == '.' || unicode.IsSpace(r) {
			return -1
		}
		return r
	}, name))
}

// columnOf returns the first column that has one of the names, -1 for none.
func columnOf(header, names []string) int {
	plain := make([]string, len(header))
	for i, h := range header {
		plain[i] = plainName(h)
	}
	for _, name := range names {
		for i, h := range plain {
			if h == name {
				return i
			}
		}
	}
	return -1
}

// rowReader returns the fields of the next row, io.EOF at the end. The slice is valid until the next call.
type rowReader func() ([]string, error)

// rows reads a table by RFC 4180 if all of it is, else line by line with the quotes as they are found: many
// programs write quotes that nothing closes.
func (c *cut) rows(comma rune) rowReader {
	if c.tooWide(c.text, comma) {
		return c.plainRows(comma)
	}
	check := c.csv(c.text, comma)
	for {
		_, err := check.Read()
		if errors.Is(err, io.EOF) {
			return c.csv(c.text, comma).Read
		}
		if err != nil {
			return c.plainRows(comma)
		}
	}
}

func (c *cut) csv(text string, comma rune) *csv.Reader {
	r := csv.NewReader(c.reader(strings.NewReader(text)))
	r.Comma, r.FieldsPerRecord, r.ReuseRecord = comma, -1, true
	return r
}

// tooWide reports whether a row of a strict table has more columns than a table may have. The parser would
// keep a multiple of such a row.
func (c *cut) tooWide(text string, comma rune) bool {
	columns, quoted := 1, false
	for i := range len(text) {
		if i%checkBytes == 0 && c.over(min(checkBytes, len(text)-i)) {
			return true
		}
		switch b := text[i]; {
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '\n':
			columns = 1
		case rune(b) == comma:
			if columns++; columns > maxColumns {
				return true
			}
		}
	}
	return false
}

// plainRows takes each line for a row. Quotes count if they are balanced within the line.
func (c *cut) plainRows(comma rune) rowReader {
	text := c.text
	var row []string
	return func() ([]string, error) {
		for text != "" {
			var line string
			if line, text = c.line(text); strings.TrimSpace(line) == "" {
				continue
			}
			var ok bool
			if row, ok = quotedRow(row[:0], line, comma); !ok {
				row = plainRow(row[:0], line, comma)
			}
			return row, nil
		}
		return nil, io.EOF
	}
}

// quotedRow appends the fields of a line that is a row of RFC 4180 with quotes, at most one more than a row
// may have. ok is false for another line.
func quotedRow(row []string, line string, comma rune) (fields []string, ok bool) {
	if !strings.Contains(line, `"`) {
		return row, false
	}
	size := utf8.RuneLen(comma)
	for len(row) <= maxColumns {
		if !strings.HasPrefix(line, `"`) {
			field, rest, more := strings.Cut(line, string(comma))
			if strings.Contains(field, `"`) {
				return row, false
			}
			if row = append(row, field); !more {
				return row, true
			}
			line = rest
			continue
		}
		end := quoteEnd(line)
		if end < 0 {
			return row, false
		}
		field := line[1:end]
		if strings.Contains(field, `"`) {
			field = strings.ReplaceAll(field, `""`, `"`)
		}
		row, line = append(row, field), line[end+1:]
		if line == "" {
			return row, true
		}
		if !strings.HasPrefix(line, string(comma)) {
			return row, false
		}
		line = line[size:]
	}
	return row, true
}

// quoteEnd returns where the quoted field at the beginning of a line ends, negative for nowhere.
func quoteEnd(line string) int {
	for at := 1; ; at += 2 {
		next := strings.IndexByte(line[at:], '"')
		if next < 0 {
			return -1
		}
		if at += next; at+1 >= len(line) || line[at+1] != '"' {
			return at
		}
	}
}

// plainRow appends the fields of a line without regard to quotes, at most one more than a row may have.
func plainRow(row []string, line string, comma rune) []string {
	for len(row) < maxColumns {
		field, rest, more := strings.Cut(line, string(comma))
		if row = append(row, field); !more {
			return row
		}
		line = rest
	}
	return append(row, line)
}
