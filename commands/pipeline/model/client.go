// Package model reads memory in texts by a language model behind an OpenAI-compatible endpoint.
package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/domain/ingestion"
)

const (
	// callLimit ends a call that hangs.
	callLimit = 30 * time.Second
	// answerLimit is the longest answer that is read, in bytes.
	answerLimit = 8 << 20
)

// Endpoint is where a model answers.
type Endpoint struct {
	// URL is the base as OpenAI clients take it, such as http://127.0.0.1:11434/v1.
	URL string
	// Name names the model; Key is sent as a bearer token where it is not empty, and never logged.
	Name, Key string
	// HTTP is nil for a client of its own, which follows no redirect: a key goes to nobody else.
	HTTP *http.Client
}

// Validate reports what cannot work.
func (e Endpoint) Validate() error {
	u, err := url.Parse(e.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("want an address such as https://models.example.com/v1")
	}
	if e.Name == "" {
		return errors.New("name the model too")
	}
	return nil
}

func (e Endpoint) client() *http.Client {
	if e.HTTP != nil {
		return e.HTTP
	}
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// post sends a request to a path of the endpoint and decodes the answer. Its errors are *pipeline.Failure, or the context's.
// They say what the endpoint answered in numbers, never in its words, which may repeat the text of a customer.
func (e Endpoint) post(ctx context.Context, client *http.Client, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode request for the model: %w", err)
	}
	callCtx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(callCtx, http.MethodPost, strings.TrimRight(e.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("request for the model: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if e.Key != "" {
		req.Header.Set("Authorization", "Bearer "+e.Key)
	}
	res, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return unavailable("the model did not answer: %v", reason(err))
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(res.Body, answerLimit+1))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case res.StatusCode == http.StatusBadRequest, res.StatusCode == http.StatusForbidden, res.StatusCode == http.StatusRequestEntityTooLarge:
		return &pipeline.Failure{Code: ingestion.ContentRejected, Message: fmt.Sprintf("the model rejected the text with status %d", res.StatusCode)}
	case res.StatusCode != http.StatusOK:
		return unavailable("the model answered with status %d", res.StatusCode)
	case err != nil:
		return unavailable("the answer of the model broke off: %v", reason(err))
	case len(data) > answerLimit:
		return unreadable("the answer of the model is longer than %d bytes", answerLimit)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return unreadable("the answer of the model is not the JSON that was asked for")
	}
	return nil
}

// reason is why a call failed, without its address, which may hold a password.
func reason(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

func unavailable(format string, args ...any) error {
	return &pipeline.Failure{Code: ingestion.ModelUnavailable, Message: fmt.Sprintf(format, args...), Retryable: true}
}

func unreadable(format string, args ...any) error {
	return &pipeline.Failure{Code: ingestion.ModelResponseUnreadable, Message: fmt.Sprintf(format, args...), Retryable: true}
}
