// Package mcpbridge carries the messages of a client that speaks the Model Context Protocol on standard input and
// output to a service that speaks it over HTTP.
package mcpbridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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
	// URL is the address of the service, with the path /mcp, and Key that of a project.
	URL, Key string
	HTTP     *http.Client

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
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxMessage)
	for lines.Scan() && ctx.Err() == nil {
		line := bytes.Clone(bytes.TrimSpace(lines.Bytes()))
		if len(line) == 0 {
			continue
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("a line of the client is no message: %w", err)
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
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the messages of the client: %w", err)
	}
	return nil
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
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.Method == "initialize" {
		var agreed struct {
			Result struct{ ProtocolVersion string }
		}
		if json.Unmarshal(answer, &agreed) == nil {
			b.version = agreed.Result.ProtocolVersion
		}
	}
	if _, err = b.out.Write(append(bytes.ReplaceAll(answer, []byte("\n"), nil), '\n')); err != nil {
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
		"Mcp-Name": m.Params.Name + m.Params.URI,
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
