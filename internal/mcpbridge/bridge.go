// Package mcpbridge carries the messages of a client that speaks the Model Context Protocol on standard input and
// output to a service that speaks it over HTTP.
package mcpbridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/internal/mcpguard"
)

// Limits of the bridge: a message of the client and an answer in bytes, the messages that wait for their answer at
// once, and the time of one.
const (
	maxMessage = 4 << 20
	maxAnswer  = 16 << 20
	maxOpen    = 8
	waits      = 2 * time.Minute
)

// Bridge carries messages.
type Bridge struct {
	// URL is the address of the service, with the path /mcp, and Key that of a project. Identity is the one that the calls
	// act as, "" for those that name it themselves.
	URL, Key, Identity string
	HTTP               *http.Client

	mu sync.Mutex
	// version is what the client and the service agreed on, "" until then and for clients that say it in each message.
	version string
	out     io.Writer
}

// message is what the bridge reads of a message.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`
}

// Run carries the messages of in, a line each, and writes the answers to out. It ends when in does.
func (b *Bridge) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	b.out = out
	if closer, ok := in.(io.Closer); ok {
		defer context.AfterFunc(ctx, func() { _ = closer.Close() })() // it ends the read of a line
	}
	open, ctx := errgroup.WithContext(ctx)
	open.SetLimit(maxOpen)
	lines := bufio.NewReaderSize(in, 64<<10)
	var failed error
	for ctx.Err() == nil {
		line, err := readLine(lines)
		if err != nil {
			failed = err
			break
		}
		if len(line) == 0 {
			continue
		}
		m, refusal := read(line)
		if refusal != nil { // of one line: the next one may be a message
			if err := b.write(refusal.Body()); err != nil {
				return err
			}
			continue
		}
		if m.Method == "initialize" || m.ID == nil {
			if err := b.carry(ctx, m, line); err != nil { // the next message may rest on it
				return err
			}
			continue
		}
		open.Go(func() error { return b.carry(ctx, m, line) })
	}
	if err := open.Wait(); err != nil {
		return err
	}
	if failed != nil && !errors.Is(failed, io.EOF) {
		return fmt.Errorf("read the messages of the client: %w", failed)
	}
	return nil
}

// tooLong takes the place of a line with more than maxMessage bytes, which is no message.
var tooLong = []byte("too long")

// readLine reads a line, without white space around it. The error is io.EOF after the last one.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxMessage; !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case long && (err == nil || errors.Is(err, io.EOF)):
			return tooLong, nil
		case err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)):
			return nil, err
		}
		return bytes.TrimSpace(line), nil
	}
}

// read reads a message. refusal is the answer to what is none; what the service does not know, it answers itself.
func read(line []byte) (m message, refusal *mcpguard.Refusal) {
	refusal = mcpguard.Check(line, "")
	if refusal == nil || refusal.Code != jsonrpc.CodeParseError && refusal.Code != jsonrpc.CodeInvalidRequest {
		refusal = nil
		if json.Unmarshal(line, &m) != nil {
			m = message{} // its parameters are no text: the service names what is wrong
			_ = json.Unmarshal(line, &struct {
				ID     *json.RawMessage `json:"id"`
				Method *string          `json:"method"`
			}{&m.ID, &m.Method})
		}
	}
	return m, refusal
}

// carry sends a message and writes its answer. A service that cannot be reached is an answer too; the error is that the
// client reads no more.
func (b *Bridge) carry(ctx context.Context, m message, line []byte) error {
	ctx, cancel := context.WithTimeout(ctx, waits)
	defer cancel()
	answer, err := b.ask(ctx, m, line)
	if m.ID == nil || err == nil && len(answer) == 0 {
		return nil // a notification has no answer
	}
	if err != nil {
		if answer, err = json.Marshal(map[string]any{
			"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32603, "message": err.Error()},
		}); err != nil {
			return fmt.Errorf("write an answer: %w", err)
		}
	}
	if m.Method == "initialize" {
		var agreed struct {
			Result struct{ ProtocolVersion string }
		}
		if json.Unmarshal(answer, &agreed) == nil {
			b.mu.Lock()
			b.version = agreed.Result.ProtocolVersion
			b.mu.Unlock()
		}
	}
	return b.write(answer)
}

// write writes an answer as a line.
func (b *Bridge) write(answer []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.out.Write(append(bytes.ReplaceAll(answer, []byte("\n"), nil), '\n')); err != nil {
		return fmt.Errorf("write an answer: %w", err)
	}
	return nil
}

// ask posts a message and returns the answer, empty for none.
func (b *Bridge) ask(ctx context.Context, m message, line []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL, bytes.NewReader(line))
	if err != nil {
		return nil, fmt.Errorf("the address of the service: %w", err)
	}
	version := m.Params.Meta.Version
	if version == "" {
		b.mu.Lock()
		version = b.version
		b.mu.Unlock()
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + b.Key, "Content-Type": "application/json", "User-Agent": "annals-mcp-bridge",
		"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version, "Mcp-Method": m.Method,
		"Mcp-Name": m.Params.Name + m.Params.URI, "X-Service-Identity": b.Identity,
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	res, err := b.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the service cannot be reached: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer of the service: %w", err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	var answer struct {
		JSONRPC, Code, DebugMessage string
	}
	if json.Unmarshal(body, &answer) == nil && answer.JSONRPC != "" || res.StatusCode/100 == 2 {
		return body, nil
	}
	if answer.Code != "" {
		return nil, fmt.Errorf("the service answers %s: %s", answer.Code, answer.DebugMessage)
	}
	return nil, fmt.Errorf("the service answers %d: %.200s", res.StatusCode, strings.TrimSpace(string(body)))
}
