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
	encoded, err := encode(shell)
	if err != nil {
		return err
	}
	// Quotes within a string are escaped, so the first match is the member.
	before, after, ok := bytes.Cut(encoded, []byte(`"`+name+`":[]`))
	if !ok {
		return fmt.Errorf("the answer has no empty list %s", name)
	}
	res := c.Response()
	write := func(parts ...[]byte) error {
		for _, part := range parts {
			if _, err := res.Write(part); err != nil {
				return fmt.Errorf("write the response: %w", err)
			}
		}
		return nil
	}
	begin := func() error {
		res.Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
		res.WriteHeader(http.StatusOK)
		return write(before, []byte(`"`+name+`":[`))
	}
	for item, err := range items {
		if err != nil {
			return err
		}
		encoded, err := encode(item)
		if err != nil {
			return err
		}
		if res.Committed {
			err = write([]byte{','}, encoded)
		} else if err = begin(); err == nil {
			err = write(encoded)
		}
		if err != nil {
			return err
		}
	}
	if !res.Committed {
		if err := begin(); err != nil {
			return err
		}
	}
	return write([]byte{']'}, after, []byte{'\n'})
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
