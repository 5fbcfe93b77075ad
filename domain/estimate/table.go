package estimate

import (
	"cmp"
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
