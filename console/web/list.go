package web

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/visits"
)

// With is the URL of the page with some parameters of its query changed, names and values in turn; an empty value drops
// the parameter. Unless it names a cursor, it goes back to the first page.
func (r *Request) With(pairs ...string) string {
	query := r.URL.Query()
	for _, name := range []string{"after", "before", "done", "format", shownParameter} {
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

// MaxTotal is up to which number lists count what they hold, and how many items a file of a list has at most.
const MaxTotal = 10_000

// Total shows a count that was read up to one more than MaxTotal.
func Total[N int | int64](n N) string {
	if n > MaxTotal {
		return "more than " + count(MaxTotal)
	}
	return count(int64(n))
}

const (
	// pageSize is how many items a page of a List has, partSize how many are read at once for a file.
	pageSize = 50
	partSize = 500
)

// Part is some items of a list, with the links to those around them.
type Part[T any] struct {
	Items []T   `json:"items"`
	Pager Pager `json:"pager"`
}

// PartOf makes a part of what a query found. cursor is the place of an item.
func PartOf[T any](items []T, newer, older bool, cursor func(T) string) Part[T] {
	if len(items) == 0 {
		return Part[T]{}
	}
	return Part[T]{items, PagerOf(newer, older, cursor(items[0]), cursor(items[len(items)-1]))}
}

// PagerOf links to what is before the first place and after the last, if there is something.
func PagerOf(newer, older bool, first, last string) (p Pager) {
	if newer {
		p.Previous = first
	}
	if older {
		p.Next = last
	}
	return p
}

// WrongPlace is the fault of a cursor that no link has.
func WrongPlace() error {
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s", words.wrongPlace)
}

// File is the address of the list as a file: of all of it, or of the page that is shown for who has no right of an
// export.
func (r *Request) File(format string) string {
	if r.MayExport() {
		return r.With("format", format)
	}
	query := r.URL.Query()
	return r.With("format", format, "after", query.Get("after"), "before", query.Get("before"))
}

// Exported records that the person gets a file of more than a page shows, or of a project. It is not sent before.
func (r *Request) Exported(what, format string) error {
	return r.visited(&visit.Exported{
		Visit: r.visit(), ProjectID: r.Project.Project.ID, What: what, Format: format,
	})
}

// ReadOpened records that the person opens the texts that a request was shown. They are not sent before.
func (r *Request) ReadOpened(request uuid.UUID) error {
	return r.visited(&visit.ReadOpened{Visit: r.visit(), ProjectID: r.Project.Project.ID, ReadID: request})
}

func (r *Request) visit() visit.Visit {
	return visit.Visit{Network: visits.Clean(r.Caller().String()), Browser: visits.Clean(r.UserAgent())}
}

func (r *Request) visited(e visit.OfPerson) error {
	if r.site.Visited == nil {
		return nil
	}
	return r.site.Visited(r.Context(), visits.Entry{
		Person: r.Person.ID, Organization: r.Membership.Organization, RequestID: r.ID(), At: r.Now(), Event: e,
	})
}

// List is what people read a page at a time, and from its beginning as a file of at most MaxTotal items.
type List[T any] struct {
	// Name is that of the file. Columns are its header, Cells those of an item.
	Name    string
	Columns []string
	Cells   func(T) []any
	// Read reads at most a number of items directly after or before a cursor, or the first. Its faults are those of the
	// filter and of the cursor.
	Read func(after, before string, most int) (Part[T], error)
}

// Serve answers with the page that the URL asks for, or with the list as CSV or JSON. page is the data of the
// template, and part the part of the list in it.
func (l List[T]) Serve(r *Request, template string, page any, part *Part[T]) (err error) {
	if r.Format() == "json" {
		return l.json(r)
	}
	return l.Page(r, template, page, part, nil)
}

// Page is Serve for a page that has more than the list: its JSON is that of the page, which fill completes.
func (l List[T]) Page(r *Request, template string, page any, part *Part[T], fill func() error) (err error) {
	if r.Format() == "csv" {
		return l.csv(r)
	}
	query := r.URL.Query()
	if *part, err = l.Read(query.Get("after"), query.Get("before"), pageSize); err == nil && fill != nil {
		err = fill()
	}
	return r.Form(err, template, page)
}

// begin reads what a file of the list begins with. Who has no right of an export gets the items of the page that is
// shown, and no more. What is more than a page shows is recorded.
func (l List[T]) begin(r *Request, format string) (part Part[T], all bool, err error) {
	if !r.MayExport() {
		query := r.URL.Query()
		part, err = l.Read(query.Get("after"), query.Get("before"), pageSize)
		return part, false, err
	}
	if part, err = l.Read("", "", partSize); err == nil && len(part.Items) > pageSize {
		err = r.Exported(l.Name, format)
	}
	return part, true, err
}

func (l List[T]) csv(r *Request) error {
	part, all, err := l.begin(r, "csv")
	if err != nil {
		return err
	}
	return r.Rows(l.Name, l.Columns, func(yield func([]string, error) bool) {
		_, err := l.each(r, part, all, func(item T) error {
			var row []string
			for _, value := range l.Cells(item) {
				row = append(row, cell(value))
			}
			if !yield(row, nil) {
				return errAnswered
			}
			return nil
		})
		if err != nil && !errors.Is(err, errAnswered) {
			yield(nil, err)
		}
	})
}

// json writes the list as {"items":[…],"more":false}.
func (l List[T]) json(r *Request) error {
	part, all, err := l.begin(r, "json")
	if err != nil {
		return err
	}
	return r.Stream("application/json; charset=utf-8", "", func(w io.Writer) error {
		begin := `{"items":[`
		more, err := l.each(r, part, all, func(item T) error {
			text, err := json.Marshal(item)
			if err == nil {
				_, err = fmt.Fprintf(w, "%s\n%s", begin, text)
			}
			begin = ","
			return err
		})
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\n],\"more\":%t}\n", strings.TrimPrefix(begin, ","), more)
		}
		return err
	})
}

// each passes on a list that begins with a part, and asks for the right of the reader at each further one. Without all
// it passes on the part alone. more is true if the list has more items than that, or than MaxTotal.
func (l List[T]) each(r *Request, part Part[T], all bool, emit func(T) error) (more bool, err error) {
	for n := 0; ; {
		for _, item := range part.Items {
			if n++; n > MaxTotal {
				return true, nil
			}
			if err := emit(item); err != nil {
				return false, err
			}
		}
		if part.Pager.Next == "" || !all {
			return part.Pager.Next != "", nil
		}
		if err := r.Again(); err != nil {
			return false, err
		}
		r.memory.Release() // that of the part before
		if part, err = l.Read(part.Pager.Next, "", partSize); err != nil {
			return false, err
		}
	}
}

// cellTime is the form of times that spreadsheets take for times. They have no zones, and milliseconds at most.
const cellTime = "2006-01-02 15:04:05.999"

// cell is a value as CSV has it: a time in UTC, nothing for nil.
func cell(value any) string {
	if at, is := value.(time.Time); is {
		return at.UTC().Format(cellTime)
	}
	if v := reflect.ValueOf(value); v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		return cell(v.Elem().Interface())
	}
	return fmt.Sprint(value)
}

// byteOrderMark shows spreadsheets that a file is UTF-8; without it they read the charset of their system.
const byteOrderMark = "\ufeff"

// Rows writes a list as CSV. Spreadsheets run what looks like a formula, so such a cell gets a quote mark.
func (r *Request) Rows(name string, columns []string, rows iter.Seq2[[]string, error]) error {
	return r.Stream("text/csv; charset=utf-8", name+".csv", func(w io.Writer) error {
		if _, err := io.WriteString(w, byteOrderMark); err != nil {
			return err
		}
		out := csv.NewWriter(w)
		err := out.Write(safeCells(columns))
		for row, failed := range rows {
			if err = errors.Join(err, failed); err == nil {
				err = out.Write(safeCells(row))
			}
			if err != nil {
				return err
			}
		}
		out.Flush()
		return errors.Join(err, out.Error())
	})
}

// notInFiles is what not every file system and header takes in a name.
var notInFiles = regexp.MustCompile(`[^-_.0-9A-Za-z]`)

// formulas begin cells that spreadsheets run, or of which they drop the first character and then run the rest. Some
// read the full-width forms as the others.
const formulas = "=+-@\t\r\n＝＋－＠"

// safeCells returns cells that no spreadsheet runs as a formula.
func safeCells(cells []string) []string {
	safe := slices.Clone(cells)
	for i, cell := range safe {
		if first, size := utf8.DecodeRuneInString(cell); size > 0 && strings.ContainsRune(formulas, first) {
			safe[i] = "'" + cell
		}
	}
	return safe
}

// SliceOf is the part of a list in memory that List.Read is asked for. Its cursors are numbers of items.
func SliceOf[T any](items []T, after, before string, most int) Part[T] {
	from, _ := strconv.Atoi(after)
	if to, err := strconv.Atoi(before); err == nil {
		from = to - most - 1
	}
	from = max(0, min(from, len(items)))
	to := min(from+most, len(items))
	part := Part[T]{Items: items[from:to]}
	if part.Pager.Total = Total(len(items)); from > 0 {
		part.Pager.Previous = strconv.Itoa(from + 1)
	}
	if to < len(items) {
		part.Pager.Next = strconv.Itoa(to)
	}
	return part
}

// maxTrail bounds the cursors of the pages before, in characters: after about a hundred pages, Previous skips some.
const maxTrail = 4_000

// Forwards is the part that List.Read is asked for of a list that can be read forwards only: read returns some items,
// and the cursor of those after them, "" for none. The cursors of a page hold those of the pages before it.
func Forwards[T any](
	after, before string, read func(cursor string) (items []T, next string, err error),
) (part Part[T], err error) {
	trail := strings.TrimSuffix(cmp.Or(after, before), "~")
	at := strings.LastIndex(trail, "~")
	if at >= 0 {
		part.Pager.Previous = cmp.Or(trail[:at], "~")
	}
	var next string
	if part.Items, next, err = read(trail[at+1:]); next == "" {
		return part, err
	}
	if len(trail) > maxTrail {
		trail = trail[strings.Index(trail[1:], "~")+1:]
	}
	part.Pager.Next = trail + "~" + next
	return part, err
}
