// Package healthcheck asks a service of this machine whether it answers.
package healthcheck

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"
)

// maxAnswer bounds how many bytes of an answer are read.
const maxAnswer = 64 << 10

// Ask returns nil if an address answers 200 within the timeout. Its error is one line. With a certificate file, of the
// setting ANNALS_TLS_CERT, only the service that shows this certificate is believed.
func Ask(ctx context.Context, address, certificate string, timeout time.Duration) error {
	transport := &http.Transport{DisableKeepAlives: true}
	if certificate != "" {
		var err error
		if transport.TLSClientConfig, err = trustOnly(certificate); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("check %s: %w", address, err)
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		// The address is in the message already.
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return fmt.Errorf("%s does not answer: %w", address, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", address, err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d: %s", address, res.StatusCode, reasonOf(body))
	}
	return nil
}

// trustOnly returns a configuration that accepts the certificate of a file (PEM) and no other. The
// certificate names the public address and not the loopback, so its name is not checked.
func trustOnly(file string) (*tls.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("ANNALS_TLS_CERT names a file that cannot be read: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("ANNALS_TLS_CERT names %s, which holds no certificate (PEM)", file)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || !bytes.Equal(state.PeerCertificates[0].Raw, block.Bytes) {
				return fmt.Errorf("it shows another certificate than %s", file)
			}
			return nil
		},
	}, nil
}

// reasonOf returns the message of an error answer, else its text.
func reasonOf(body []byte) string {
	var envelope struct {
		DebugMessage string `json:"debugMessage"`
	}
	if json.Unmarshal(body, &envelope) == nil && envelope.DebugMessage != "" {
		return envelope.DebugMessage
	}
	return string(bytes.TrimSpace(body))
}
