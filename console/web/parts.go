package web

import (
	"cmp"
	"strconv"
	"strings"
)

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
