package estimate

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/annals-project/annals/domain/audience"
)

const (
	// maxColumns and maxColumnName bound what is repeated in each row.
	maxColumns    = 1000
	maxColumnName = 100
	// sampleRows is how many rows decide the order of day and month.
	sampleRows = 200
)

// cutTable cuts a table with a header: one data point for each row.
func cutTable(c *cut) error {
	t := &table{cut: c, rows: strictRows(c.text, separator(c.text)), names: names{}}
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

// rowReader returns the fields of the next row, io.EOF at the end. The slice is valid until the next call.
type rowReader func() ([]string, error)

// strictRows reads a table by RFC 4180 if all of it is, else line by line with the quotes as they are
// found: many programs write quotes that nothing closes.
func strictRows(text string, comma rune) rowReader {
	check := newCSV(text, comma, false)
	for {
		_, err := check.Read()
		if errors.Is(err, io.EOF) {
			return newCSV(text, comma, false).Read
		}
		if err != nil {
			break
		}
	}
	return plainRows(text, comma)
}

func newCSV(text string, comma rune, lazy bool) *csv.Reader {
	r := csv.NewReader(strings.NewReader(text))
	r.Comma, r.FieldsPerRecord, r.ReuseRecord, r.LazyQuotes = comma, -1, true, lazy
	return r
}

// plainRows takes each line for a row. Quotes count if they are balanced within the line.
func plainRows(text string, comma rune) rowReader {
	return func() ([]string, error) {
		for {
			if text == "" {
				return nil, io.EOF
			}
			var line string
			line, text = firstLine(text)
			if strings.TrimSpace(line) == "" {
				continue
			}
			if strings.Contains(line, `"`) {
				if fields, err := newCSV(line, comma, false).Read(); err == nil {
					return fields, nil
				}
			}
			return strings.SplitN(line, string(comma), maxColumns+1), nil
		}
	}
}

// table is a table while it is cut.
type table struct {
	cut    *cut
	rows   rowReader
	header []string
	// The columns with a meaning, -1 for none.
	id, time, author, label, audience int
	monthFirst                        bool
	// sample are the rows that were read ahead.
	sample [][]string
	names  names
}

func (t *table) readHeader() error {
	header, err := t.rows()
	if err != nil {
		return unparseable(Table, "it has no header")
	}
	if len(header) > maxColumns {
		return unparseable(Table, "it has %d columns: want at most %d", len(header), maxColumns)
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
	return t.readSample()
}

// readSample reads some rows ahead, to learn how their dates are written.
func (t *table) readSample() error {
	if t.time < 0 {
		return nil
	}
	var times []string
	for len(t.sample) < sampleRows {
		row, err := t.rows()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return unparseable(Table, "%v", err)
		}
		t.sample = append(t.sample, append([]string(nil), row...))
		if t.time < len(row) {
			times = append(times, row[t.time])
		}
	}
	t.monthFirst = isMonthFirst(times)
	return nil
}

func (t *table) each() error {
	for _, row := range t.sample {
		if err := t.row(row); err != nil {
			return err
		}
	}
	t.sample = nil
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
		return unparseable(Table, "a row has %d columns: want at most %d", len(row), maxColumns)
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
	p := Point{
		Content: b.String(), Label: t.field(row, t.label), Identity: t.field(row, t.author), Metadata: t.cut.metadata(),
	}
	if p.Label == "" {
		p.Label = t.cut.base()
	}
	if at, ok := parseTime(t.field(row, t.time), t.cut.zone, t.monthFirst); ok {
		p.At = at
	} else if at, ok := parseUnix(t.field(row, t.time)); ok {
		p.At = at
	}
	if slug := t.field(row, t.audience); audience.ValidSlug(slug) {
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

// names counts the names of the elements of a file, by a hash.
type names map[uint64]uint32

// unique returns the name of an element: its own id, else the digest of its content. From the second
// element of a name on, a number follows, and one that no element has.
func (n names) unique(id, content string) string {
	if id == "" {
		id = digest(content)
	}
	id = fitID(id)
	name, at := id, nameHash(id)
	for own := at; n[own] > 0; own = nameHash(name) {
		n[at]++
		name = id + "~" + strconv.FormatUint(uint64(n[at]), 10)
	}
	n[nameHash(name)]++
	return name
}

func nameHash(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.BigEndian.Uint64(sum[:])
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
