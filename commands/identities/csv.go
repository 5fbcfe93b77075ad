package identities

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
)

// IdentityFile is what a CSV file has of identities.
type IdentityFile struct {
	// Keys are the keys of traits in the order of the columns.
	Keys []string
	// Rows are the rows without a problem, in the order of the file, each of another identity.
	Rows []identity.Row
	// Bad counts the rows with a problem. Problems are the first of these.
	Bad      int
	Problems []RowProblem
}

// RowProblem is what is wrong with a row. Column is "" if it is the row as a whole.
type RowProblem struct {
	Line            int
	Column, Message string
}

// maxProblems is how many problems of a file are listed.
const maxProblems = 100

// identityColumn is the column of the identities.
const identityColumn = "identity"

// ReadIdentityFile reads a CSV file: a header with the column "identity" and a column for each trait, then a row for
// each identity. An empty cell is no trait. A comma, semicolon or tab divides the cells, as in the header. The fault is
// invalid-request for a file that cannot be read at all.
func ReadIdentityFile(file []byte) (IdentityFile, error) {
	file = bytes.TrimPrefix(file, []byte("\ufeff"))
	switch {
	case len(file) > limit.IdentityFile:
		return IdentityFile{}, badFile("it has more than %d bytes: divide it, or use the API", limit.IdentityFile)
	case !utf8.Valid(file):
		return IdentityFile{}, badFile("it is not UTF-8: save it as CSV UTF-8")
	}
	r := csv.NewReader(bytes.NewReader(file))
	r.Comma, r.FieldsPerRecord = delimiterOf(file), -1
	header, err := r.Read()
	if errors.Is(err, io.EOF) {
		return IdentityFile{}, badFile("it is empty: want a header row with the column %q", identityColumn)
	}
	if err != nil {
		return IdentityFile{}, badFile("its header: %v", problemOf(err))
	}
	f := identityFile{reader: r, header: header, lines: map[string]int{}}
	if err := f.readHeader(); err != nil {
		return IdentityFile{}, err
	}
	return f.IdentityFile, f.readRows()
}

func badFile(format string, args ...any) error {
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, "the file cannot be read: %s", fmt.Sprintf(format, args...))
}

// delimiterOf returns what divides the cells of the first line.
func delimiterOf(file []byte) rune {
	line, _, _ := bytes.Cut(file, []byte("\n"))
	best, most := ',', 0
	for _, c := range []rune{',', ';', '\t'} {
		if n := bytes.Count(line, []byte(string(c))); n > most {
			best, most = c, n
		}
	}
	return best
}

// problemOf returns an error of the reader without its place.
func problemOf(err error) error {
	if p, is := errors.AsType[*csv.ParseError](err); is {
		return p.Err
	}
	return err
}

type identityFile struct {
	IdentityFile

	reader *csv.Reader
	header []string
	// column is that of the identities.
	column int
	// lines are the lines of identities.
	lines map[string]int
}

func (f *identityFile) readHeader() error {
	f.column = -1
	seen := map[string]bool{}
	for n, name := range f.header {
		name = strings.TrimSpace(name)
		f.header[n] = name
		switch err := fields.CheckName(name, 1, limit.TraitKey); {
		case seen[name]:
			return badFile("its header names %q twice", name)
		case err != nil:
			return badFile("column %d of its header %v", n+1, err)
		case strings.EqualFold(name, identityColumn) && f.column < 0:
			f.column = n
		default:
			f.Keys = append(f.Keys, name)
		}
		seen[name] = true
	}
	switch {
	case f.column < 0:
		return badFile("its header has no column %q", identityColumn)
	case len(f.Keys) > limit.Traits:
		return badFile("it has %d traits: want at most %d", len(f.Keys), limit.Traits)
	}
	return nil
}

func (f *identityFile) readRows() error {
	for {
		cells, err := f.reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if len(f.Rows)+f.Bad == limit.IdentityFileRows {
			return badFile("it has more than %d rows: divide it", limit.IdentityFileRows)
		}
		line := 0
		if p, is := errors.AsType[*csv.ParseError](err); is {
			line = p.StartLine
		} else if err == nil {
			line, _ = f.reader.FieldPos(0)
		}
		row, column, err := f.rowOf(cells, line, err)
		if err == nil {
			f.Rows = append(f.Rows, row)
			continue
		}
		if f.Bad++; len(f.Problems) < maxProblems {
			f.Problems = append(f.Problems, RowProblem{Line: line, Column: column, Message: err.Error()})
		}
	}
}

// rowOf makes a row of its cells, or returns what is wrong with it and in which column.
func (f *identityFile) rowOf(cells []string, line int, err error) (row identity.Row, column string, _ error) {
	switch {
	case err != nil:
		return row, "", problemOf(err)
	case len(cells) != len(f.header):
		return row, "", fmt.Errorf("has %d cells: the header has %d", len(cells), len(f.header))
	}
	row = identity.Row{Identity: cells[f.column], Traits: map[string]string{}}
	if err := fields.CheckName(row.Identity, 1, limit.Identity); err != nil {
		return row, identityColumn, err
	}
	for n, cell := range cells {
		if n == f.column || cell == "" {
			continue
		}
		if err := fields.CheckName(cell, 1, limit.TraitValue); err != nil {
			return row, f.header[n], err
		}
		row.Traits[f.header[n]] = cell
	}
	if err := identity.CheckTraits(nil, row.Traits); err != nil {
		return row, "", err
	}
	if first, has := f.lines[row.Identity]; has {
		return row, identityColumn, fmt.Errorf("line %d has the same identity: remove one of the two", first)
	}
	f.lines[row.Identity] = line
	return row, "", nil
}

// ImportIdentities creates records or replaces all of their traits, as BulkIdentities does for at most limit.BulkRows.
// If a part fails, created and updated count those before it, which are written. To import all again is safe.
func (s *Service) ImportIdentities(
	ctx context.Context, call engine.Call, rows []identity.Row,
) (created, updated int, err error) {
	call.Origin = identity.OriginCSV
	for len(rows) > 0 {
		n, traits := 0, 0
		for ; n < min(len(rows), limit.BulkRows) && traits+len(rows[n].Traits) <= limit.BulkTraits; n++ {
			traits += len(rows[n].Traits)
		}
		statuses, err := s.BulkIdentities(ctx, call, rows[:n])
		if err != nil {
			return created, updated, err
		}
		for _, status := range statuses {
			if status.Status == identity.Created {
				created++
			} else {
				updated++
			}
		}
		rows = rows[n:]
	}
	return created, updated, nil
}
