package operatorapi

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// An export is a sequence of frames: lines as they go into the file, which may take several frames, and marks between
// them. A frame is a byte that names its kind, the length of its payload as four bytes, and the payload.
const (
	frameBegan   = 'B' // ExportBegan; the first frame
	frameLines   = 'L' // a part of the lines
	frameMark    = 'M' // export.Mark: the lines before it are complete
	frameEnd     = 'E' // the export is complete; the last frame
	frameFailure = 'F' // refusal; the last frame

	frameHeader = 5
	maxFrame    = 64 << 10
)

// frames writes frames.
type frames struct {
	out   *bufio.Writer
	flush func() error
}

func newFrames(w http.ResponseWriter) *frames {
	w.Header().Set("Content-Type", "application/octet-stream")
	return &frames{bufio.NewWriterSize(w, maxFrame), http.NewResponseController(w).Flush}
}

// Write implements io.Writer for the lines.
func (f *frames) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), maxFrame)]
		if err := f.put(frameLines, part); err != nil {
			return n, err
		}
		n, b = n+len(part), b[len(part):]
	}
	return n, nil
}

func (f *frames) put(kind byte, payload []byte) error {
	var header [frameHeader]byte
	header[0] = kind
	binary.BigEndian.PutUint32(header[1:], uint32(len(payload)))
	if _, err := f.out.Write(header[:]); err != nil {
		return err
	}
	_, err := f.out.Write(payload)
	return err
}

// send writes a frame with a value and flushes it.
func (f *frames) send(kind byte, value any) error {
	payload, err := json.Marshal(value)
	if err == nil {
		err = f.put(kind, payload)
	}
	if err == nil {
		err = f.out.Flush()
	}
	if err != nil {
		return err
	}
	return f.flush()
}

// errBrokenOff is returned for frames that end before the last one.
var errBrokenOff = errors.New("the answer of the server broke off")

// readFrame reads one frame. The payload is valid until the next call.
func readFrame(in *bufio.Reader, buffer []byte) (kind byte, payload []byte, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errBrokenOff, err)
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size > uint32(len(buffer)) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", errBrokenOff, size)
	}
	payload = buffer[:size]
	if _, err := io.ReadFull(in, payload); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errBrokenOff, err)
	}
	return header[0], payload, nil
}
