package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// maxHealthAnswer bounds how many bytes of an answer a check reads.
const maxHealthAnswer = 64 << 10

// HealthcheckCmd is "annals healthcheck". It checks the service of this machine, for container
// engines whose image has no shell and no HTTP client. It reads the settings of the service.
type HealthcheckCmd struct {
	APIAddr string        `name:"api-addr" setting:"ANNALS_API_ADDR" default:"127.0.0.1:8080" help:"Address that the API of the service listens on."`
	OpsAddr string        `name:"ops-addr" setting:"ANNALS_OPS_ADDR" help:"Address that its operation routes listen on; default: that of the API."`
	TLSCert string        `name:"tls-cert" setting:"ANNALS_TLS_CERT" help:"Certificate file (PEM) of the service; with it the check speaks HTTPS."`
	Ready   bool          `name:"ready" help:"Ask whether the service can take calls (/readyz) instead of whether it runs (/healthz)."`
	Timeout time.Duration `name:"timeout" default:"4s" help:"How long the service may take to answer."`
}

// Run prints one line if the service is ready, and fails with one line otherwise.
func (c *HealthcheckCmd) Run(ctx context.Context, env *Env) error {
	address, err := c.address()
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if c.TLSCert != "" {
		if transport.TLSClientConfig, err = trustOnly(c.TLSCert); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
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
	body, err := io.ReadAll(io.LimitReader(res.Body, maxHealthAnswer))
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", address, err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d: %s", address, res.StatusCode, reasonOf(body))
	}
	_, err = fmt.Fprintf(env.Stdout, "%s answers 200\n", address)
	return err
}

// address returns the URL of the check. It uses the loopback, or the one address that the service
// listens on.
func (c *HealthcheckCmd) address() (string, error) {
	setting, addr := "ANNALS_API_ADDR", c.APIAddr
	if c.OpsAddr != "" {
		setting, addr = "ANNALS_OPS_ADDR", c.OpsAddr
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "0" || !isAddr(addr) {
		return "", fmt.Errorf("%s is %q: want host:port, such as 127.0.0.1:8080", setting, addr)
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip != nil && ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	address := url.URL{Scheme: "http", Host: net.JoinHostPort(host, port), Path: "/healthz"}
	if c.TLSCert != "" {
		address.Scheme = "https"
	}
	if c.Ready {
		address.Path = "/readyz"
	}
	return address.String(), nil
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
