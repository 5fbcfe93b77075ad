// Package model calls a language model at an OpenAI-compatible endpoint, to extract memories and to
// embed texts.
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
	// callTimeout ends a call that hangs.
	callTimeout = 30 * time.Second
	// maxResponse is the longest response that is read, in bytes.
	maxResponse = 8 << 20
)

// Endpoint is the endpoint of a model.
type Endpoint struct {
	// URL is the base as OpenAI clients take it, such as http://127.0.0.1:11434/v1.
	URL string
	// Name names the model. Key is sent as a bearer token unless it is empty, and is never logged.
	Name, Key string
	// HTTP is the client. Nil makes a client that follows no redirect, so that nobody else receives
	// the key.
	HTTP *http.Client
	// Observe is called after each call that its caller did not give up. failed is true if the endpoint did not do what
	// was asked and other texts may have the same fate. It may be nil.
	Observe func(failed bool)
}

// Validate returns an error if the address or the name cannot work.
func (e Endpoint) Validate() error {
	u, err := url.Parse(e.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("the address is not an HTTP URL; set one such as https://models.example.com/v1")
	}
	if e.Name == "" {
		return errors.New("the name of the model is missing; set it too")
	}
	return nil
}

func (e Endpoint) client() *http.Client {
	if e.HTTP != nil {
		return e.HTTP
	}
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// post calls the endpoint as call does, and reports how the call ended.
func (e Endpoint) post(ctx context.Context, client *http.Client, path string, request, response any) error {
	err := e.call(ctx, client, path, request, response)
	if e.Observe != nil && ctx.Err() == nil {
		e.Observe(unusable(err) != nil)
	}
	return err
}

// unusable returns an error that other texts would get too, and nil for any other.
func unusable(err error) error {
	if failure, is := errors.AsType[*pipeline.Failure](err); is && failure.Code != ingestion.ModelUnavailable &&
		len(failure.Settings) == 0 {
		return nil
	}
	return err
}

// call sends a request to a path of the endpoint and decodes the response. The error is a
// *pipeline.Failure, or that of the context. It quotes the status of the response and never its
// words, which may repeat the text of a customer.
func (e Endpoint) call(ctx context.Context, client *http.Client, path string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode request for the model: %w", err)
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	address := strings.TrimRight(e.URL, "/") + path
	req, err := http.NewRequestWithContext(callCtx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request for the model: %w", err)
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
		return pointing(unavailable("the call of the model failed: %v", reason(err)), settingURL)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxResponse+1))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch status := res.StatusCode; {
	case status == http.StatusBadRequest, status == http.StatusForbidden, status == http.StatusRequestEntityTooLarge:
		message := fmt.Sprintf("the model rejected the text with status %d", status)
		failure := &pipeline.Failure{Code: ingestion.ContentRejected, Message: message}
		if status == http.StatusForbidden {
			failure.Settings = []string{settingKey}
		}
		return failure
	case status == http.StatusUnauthorized:
		return pointing(unavailable("the model returned status %d", status), settingKey)
	case status == http.StatusNotFound:
		return pointing(unavailable("the model returned status %d", status), settingURL, settingName)
	case status >= http.StatusMultipleChoices && status < http.StatusBadRequest:
		return pointing(unavailable("the model returned status %d", status), settingURL)
	case status != http.StatusOK:
		return unavailable("the model returned status %d", status)
	case err != nil:
		return unavailable("the response of the model is truncated: %v", reason(err))
	case len(data) > maxResponse:
		return unreadable("the response of the model is longer than %d bytes", maxResponse)
	}
	if err := json.Unmarshal(data, response); err != nil {
		return pointing(unreadable("the response of the model is not the expected JSON"), settingURL)
	}
	return nil
}

// reason returns why a call failed, without its address, which may hold a password.
func reason(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

// The settings of an endpoint, as the ends of their names.
const (
	settingURL  = "URL"
	settingName = "NAME"
	settingKey  = "KEY"
)

// pointing adds the settings that may be wrong to a failure.
func pointing(failure *pipeline.Failure, settings ...string) *pipeline.Failure {
	failure.Settings = settings
	return failure
}

// hello is the text of a probe: a call that costs little, and fails as one for the text of a customer would.
const hello = "Hello."

func unavailable(format string, args ...any) *pipeline.Failure {
	return &pipeline.Failure{Code: ingestion.ModelUnavailable, Message: fmt.Sprintf(format, args...), Retryable: true}
}

func unreadable(format string, args ...any) *pipeline.Failure {
	message := fmt.Sprintf(format, args...)
	return &pipeline.Failure{Code: ingestion.ModelResponseUnreadable, Message: message, Retryable: true}
}
