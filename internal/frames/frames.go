// Package frames carries bytes, with values between them, over one stream. A frame is a byte that names its kind, the
// length of its payload as four bytes, and the payload.
package frames

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bytes is the kind of a frame with a part of the bytes. The other kinds are the caller's, with JSON.
const Bytes byte = 'L'

const (
	header     = 5
	maxPayload = 64 << 10
)

// ErrBrokenOff is a stream that ends within a frame or where one is expected, or holds what is none.
var ErrBrokenOff = errors.New("the answer of the server broke off")

// Writer writes frames. It implements io.Writer for the bytes.
type Writer struct {
	out   *bufio.Writer
	flush func() error
}

// NewWriter makes a writer. flush sends what to received.
func NewWriter(to io.Writer, flush func() error) *Writer {
	return &Writer{bufio.NewWriterSize(to, maxPayload), flush}
}

// Write writes a part of the bytes, in frames of at most 64 KiB.
func (w *Writer) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), maxPayload)]
		if err := w.put(Bytes, part); err != nil {
			return n, err
		}
		n, b = n+len(part), b[len(part):]
	}
	return n, nil
}

// Value writes a value as JSON of at most 64 KiB, and flushes it with the bytes before it.
func (w *Writer) Value(kind byte, value any) error {
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

func (w *Writer) put(kind byte, payload []byte) error {
	var head [header]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	if _, err := w.out.Write(head[:]); err != nil {
		return err
	}
	_, err := w.out.Write(payload)
	return err
}

// Reader reads frames.
type Reader struct {
	in     *bufio.Reader
	buffer []byte
}

// NewReader makes a reader.
func NewReader(in io.Reader) *Reader {
	return &Reader{bufio.NewReaderSize(in, maxPayload), make([]byte, maxPayload)}
}

// Next reads one frame. The payload is valid until the next call.
func (r *Reader) Next() (kind byte, payload []byte, err error) {
	var head [header]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrBrokenOff, err)
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > maxPayload {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", ErrBrokenOff, size)
	}
	payload = r.buffer[:size]
	if _, err := io.ReadFull(r.in, payload); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrBrokenOff, err)
	}
	return head[0], payload, nil
}

// Decoded passes the value of a frame to a function.
func Decoded[T any](payload []byte, do func(T) error) error {
	var value T
	if err := json.Unmarshal(payload, &value); err != nil {
		return fmt.Errorf("decode the answer of the server: %w", err)
	}
	return do(value)
}
