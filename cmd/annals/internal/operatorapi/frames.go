package operatorapi

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Some answers are frames: bytes, with values between them. A frame is a byte that names its kind, the length of its
// payload as four bytes, and the payload. These kinds are common to all such answers; the others have a value as JSON.
const (
	frameBytes   = 'L' // a part of the bytes
	frameEnd     = 'E' // the answer is complete, with its last value
	frameFailure = 'F' // refusal; the last frame
)

const (
	frameHeader = 5
	maxPayload  = 64 << 10
)

// framed returns a route that answers in frames. What begin refuses is refused as by other routes. write writes the
// answer and returns its last value.
func framed[In, Began any](
	path string, begin func(context.Context, In) (Began, error),
	write func(context.Context, In, Began, *frameWriter) (last any, err error),
) Route {
	return Route{http.MethodPost + " " + path, func(out answers) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			in, _, err := readRequest[In](r)
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			began, err := begin(r.Context(), in)
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			w.Header().Set("Content-Type", "application/octet-stream")
			to := &frameWriter{bufio.NewWriterSize(w, maxPayload), http.NewResponseController(w).Flush}
			last, err := write(r.Context(), in, began, to)
			switch {
			case err == nil:
				err = to.Value(frameEnd, last)
			case r.Context().Err() == nil:
				_, failure := refusalOf(err)
				err = to.Value(frameFailure, failure)
			}
			if err != nil {
				out.notWritten(r, err)
			}
		}
	}}
}

// frameWriter writes frames. It implements io.Writer for the bytes.
type frameWriter struct {
	out   *bufio.Writer
	flush func() error
}

// Write writes a part of the bytes, in frames of at most 64 KiB.
func (w *frameWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), maxPayload)]
		if err := w.put(frameBytes, part); err != nil {
			return n, err
		}
		n, b = n+len(part), b[len(part):]
	}
	return n, nil
}

// Value writes a value as JSON of at most 64 KiB, and flushes it with the bytes before it.
func (w *frameWriter) Value(kind byte, value any) error {
	payload, err := json.Marshal(value)
	if err == nil {
		err = w.put(kind, payload)
	}
	if err == nil {
		err = w.out.Flush()
	}
	if err != nil {
		return err
	}
	return w.flush()
}

func (w *frameWriter) put(kind byte, payload []byte) error {
	var head [frameHeader]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	if _, err := w.out.Write(head[:]); err != nil {
		return err
	}
	_, err := w.out.Write(payload)
	return err
}

// errBrokenOff is an answer that ends within a frame or where one is expected, or holds what is none.
var errBrokenOff = errors.New("the answer of the server broke off")

// receive calls a route that answers in frames, and passes the frames to take. It returns the last value once the
// answer is complete. What the server refuses is one of the refusals.
func (c *Client) receive(
	ctx context.Context, path string, in any, take func(kind byte, payload []byte) error,
) (last []byte, err error) {
	answer, err := c.send(ctx, http.MethodPost, path, in)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	return readFrames(answer.Body, take)
}

// readFrames passes frames to take until the last one. A payload is valid until the next frame is read.
func readFrames(from io.Reader, take func(kind byte, payload []byte) error) (last []byte, err error) {
	in, buffer := bufio.NewReaderSize(from, maxPayload), make([]byte, maxPayload)
	for {
		var head [frameHeader]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return nil, fmt.Errorf("%w: %w", errBrokenOff, err)
		}
		size := binary.BigEndian.Uint32(head[1:])
		if size > maxPayload {
			return nil, fmt.Errorf("%w: a frame of %d bytes", errBrokenOff, size)
		}
		payload := buffer[:size]
		if _, err := io.ReadFull(in, payload); err != nil {
			return nil, fmt.Errorf("%w: %w", errBrokenOff, err)
		}
		switch kind := head[0]; kind {
		case frameEnd:
			return payload, nil
		case frameFailure:
			return nil, decoded(payload, func(r refusal) error { return r.err() })
		default:
			if err := take(kind, payload); err != nil {
				return nil, err
			}
		}
	}
}

// bytesTo writes the bytes of a frame, which is of no other kind.
func bytesTo(to io.Writer, kind byte, payload []byte) error {
	if kind != frameBytes {
		return fmt.Errorf("%w: a frame of an unknown kind", errBrokenOff)
	}
	_, err := to.Write(payload)
	return err
}

// decoded passes the value of a frame to a function.
func decoded[T any](payload []byte, do func(T) error) error {
	var value T
	if err := json.Unmarshal(payload, &value); err != nil {
		return fmt.Errorf("decode the answer of the server: %w", err)
	}
	return do(value)
}
