package httpx

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"

	"github.com/labstack/echo/v4"
)

// Stream responds 200 with an object that contains one long list, which it encodes item by item.
// shell is the object with that list empty, but not nil; name is the JSON name of the list.
func Stream[T any](c echo.Context, shell any, name string, items []T) error {
	return StreamSeq(c, shell, name, func(yield func(T, error) bool) {
		for i := range items {
			if !yield(items[i], nil) {
				return
			}
		}
	})
}

// StreamSeq is Stream of items that are read while they are written. If the first item is an
// error, nothing is written. A later error aborts the response.
func StreamSeq[T any](c echo.Context, shell any, name string, items iter.Seq2[T, error]) error {
	return StreamLists(c, shell, ListOf(name, items))
}

// List is a list of an answer that is encoded item by item.
type List struct {
	name  string
	items iter.Seq2[any, error]
}

// ListOf returns the list with a JSON name.
func ListOf[T any](name string, items iter.Seq2[T, error]) List {
	return List{name, func(yield func(any, error) bool) {
		for item, err := range items {
			if !yield(item, err) {
				return
			}
		}
	}}
}

// StreamLists is StreamSeq of several lists, in the order of the shell. Nothing is written if the first item of
// all is an error.
func StreamLists(c echo.Context, shell any, lists ...List) error {
	rest, err := encode(shell)
	if err != nil {
		return err
	}
	w := streamWriter{c: c, res: c.Response()}
	for _, list := range lists {
		// Quotes within a string are escaped, so the first match is the member.
		before, after, ok := bytes.Cut(rest, []byte(`"`+list.name+`":[]`))
		if !ok {
			return fmt.Errorf("the answer has no empty list %s", list.name)
		}
		rest = after
		w.due = append(append(w.due, before...), `"`+list.name+`":[`...)
		first := true
		for item, err := range list.items {
			if err != nil {
				return err
			}
			encoded, err := encode(item)
			if err != nil {
				return err
			}
			if !first {
				w.due = append(w.due, ',')
			}
			first = false
			if err := w.write(encoded); err != nil {
				return err
			}
		}
		w.due = append(w.due, ']')
	}
	return w.write(append(rest, '\n'))
}

// streamWriter begins the response with its first part.
type streamWriter struct {
	c   echo.Context
	res *echo.Response
	// due is what comes before the next part.
	due []byte
}

func (w *streamWriter) write(part []byte) error {
	if err := store(w.c); err != nil {
		return err
	}
	if !w.res.Committed {
		w.res.Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
		w.res.WriteHeader(http.StatusOK)
	}
	for _, b := range [][]byte{w.due, part} {
		if _, err := w.res.Write(b); err != nil {
			return fmt.Errorf("write the response: %w", err)
		}
	}
	w.due = w.due[:0]
	return nil
}

// encode returns the JSON of a value as serializer writes it.
func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the response: %w", err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}
