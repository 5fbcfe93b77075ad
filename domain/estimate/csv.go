package estimate

import (
	"encoding/csv"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

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
