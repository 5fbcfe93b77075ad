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
	"strings"
	"text/tabwriter"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/doctor"
	"github.com/annals-project/annals/cmd/annals/internal/grammar"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/cmd/annals/internal/statusview"
	"github.com/annals-project/annals/projections/datapoints"
)

// StatusCmd is "annals status".
type StatusCmd struct {
	Remote
	IngestionID string `arg:"" optional:"" help:"A send, as its receipt names it; without one, the server is asked whether it is ready, and how it is."`
	JSON        bool   `name:"json" help:"Print the answer as one JSON value."`
}

// Run shows the state. It fails if the server is not ready or the send has stopped.
func (c *StatusCmd) Run(ctx context.Context, env *Env) error {
	if c.IngestionID == "" {
		return c.server(ctx, env)
	}
	to, err := c.client()
	if err != nil {
		return err
	}
	s, err := to.GetIngestion(ctx, c.IngestionID)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(env.Stdout, s); err != nil {
			return err
		}
	} else {
		_, _ = fmt.Fprintf(env.Stdout, "send: %s\nproject: %s; sends waiting %d, in progress %d, stopped %d\n",
			s.Status, projectState(s), s.Readiness.Raw, s.Readiness.Comprehension, s.Readiness.Failed)
	}
	if s.Failure != nil {
		return fmt.Errorf("the send has stopped: %s: %s", s.Failure.Code, s.Failure.Message)
	}
	return nil
}

func projectState(s *client.IngestionStatus) string {
	switch {
	case s.Settled:
		return "settled"
	case s.Blocked:
		return "blocked by stopped sends"
	default:
		return "working"
	}
}

// server shows whether the server is ready, which requires no key. A caller who may use the socket of the data
// folder also sees what an operator should know.
func (c *StatusCmd) server(ctx context.Context, env *Env) error {
	named := c.URL
	if _, err := c.fill(); err != nil {
		return err
	}
	is, err := c.read(ctx, named)
	if err != nil && is.URL == "" {
		return err
	}
	if c.JSON {
		if err != nil {
			is.Why = err.Error()
		}
		err = errors.Join(printJSON(env.Stdout, is), err)
	} else if err == nil {
		err = is.print(env.Stdout)
	}
	if err == nil && !is.Ready {
		err = fmt.Errorf("%s is not ready: %s", is.URL, is.Why)
	}
	return err
}

// read asks the server that runs on the data folder, or that at the address. A named address is asked itself.
func (c *StatusCmd) read(ctx context.Context, named string) (is serverStatus, err error) {
	service, err := operatorapi.ServiceStatus.Call(ctx, operatorapi.Dial(c.DataDir), operatorapi.None{})
	if err == nil && (named == "" || named == service.API || named == service.Health) {
		is.Service = &service
	}
	switch {
	case is.Service != nil && named == "":
		is.URL, is.Condition = service.API, statusview.ConditionOf(service)
		return is, nil
	case c.URL == "":
		return is, c.noServer()
	}
	to, err := client.New(c.URL, "", cliOptions...)
	if err != nil {
		return is, fmt.Errorf("address of the server: %w", err)
	}
	is.URL = to.BaseURL()
	is.Condition, err = statusview.Read(ctx, to)
	return is, err
}

// serverStatus is the state of a server as JSON.
type serverStatus struct {
	URL string `json:"url"`
	statusview.Condition
	// Service is nil if the server is known by its address alone.
	Service *operatorapi.Status `json:"service,omitempty"`
}

func (s serverStatus) print(to io.Writer) error {
	err := statusview.Print(to, s.URL, s.Condition)
	if err == nil && s.Service != nil {
		err = statusview.PrintService(to, *s.Service, time.Now())
	}
	return err
}

// FailedCmd is "annals failed". It calls the server through the socket in the data folder, so it
// needs no key, but the rights of the user that runs the server.
type FailedCmd struct {
	operatorapi.WhoFlags
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	Retry   bool   `name:"retry" help:"Put back the stopped sends that a retry can help."`
	JSON    bool   `name:"json" help:"Print the list as one JSON value."`
}

// failedSend is a stopped send as it is printed.
type failedSend struct {
	datapoints.StoppedSend
	// Retried is true if --retry queued the send again.
	Retried bool `json:"retried,omitempty"`
}

// Run lists the stopped sends of every project, oldest first.
func (c *FailedCmd) Run(ctx context.Context, env *Env) error {
	server := operatorapi.Dial(c.DataDir)
	list, err := allFailed(ctx, server)
	if err != nil {
		return err
	}
	if c.Retry {
		if err := retryAll(ctx, server, list); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(env.Stdout, map[string]any{"failed": list})
	}
	return c.print(env, list)
}

func allFailed(ctx context.Context, server *operatorapi.Client) ([]failedSend, error) {
	list := []failedSend{}
	err := operatorapi.ListFailed.Call(ctx, server, operatorapi.None{}, func() {}, func(f datapoints.StoppedSend) error {
		list = append(list, failedSend{StoppedSend: f})
		return nil
	})
	return list, err
}

// retryAll retries the sends that a retry can help. It skips a send that another caller retried or
// deleted meanwhile.
func retryAll(ctx context.Context, server *operatorapi.Client, list []failedSend) error {
	for i := range list {
		if !list[i].Retryable {
			continue
		}
		_, err := operatorapi.Retry.Call(ctx, server, operatorapi.RetryRequest{ID: list[i].IngestionID})
		switch {
		case err == nil:
			list[i].Retried = true
		case errors.Is(err, operatorapi.ErrNotStopped), errors.Is(err, operatorapi.ErrNotFound):
		default:
			return fmt.Errorf("retry %s: %w", list[i].IngestionID, err)
		}
	}
	return nil
}

func (c *FailedCmd) print(env *Env, list []failedSend) error {
	if len(list) == 0 {
		_, _ = fmt.Fprintln(env.Stdout, "no send has stopped")
		return nil
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "SEND\tPROJECT\tSTOPPED\tITEMS\tREASON")
	var retried int
	for _, f := range list {
		note := ""
		switch {
		case f.Retried:
			note, retried = " (put back)", retried+1
		case !f.Retryable:
			note = " (a retry does not help: change the content and send it again)"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s: %s%s\n", f.IngestionID, f.Project, f.FailedAt.UTC().Format(time.RFC3339),
			f.Items, f.Code, f.Message, note)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write list: %w", err)
	}
	if c.Retry {
		_, _ = fmt.Fprintf(env.Stdout, "%d of %d put back\n", retried, len(list))
	}
	return nil
}

// HealthcheckCmd is "annals healthcheck". It checks the service of this machine, for container
// engines whose image has no shell and no HTTP client. It reads the settings of the service.
type HealthcheckCmd struct {
	APIAddr string        `name:"api-addr" setting:"ANNALS_API_ADDR" default:"127.0.0.1:8080" help:"Address that the API of the service listens on."`
	OpsAddr string        `name:"ops-addr" setting:"ANNALS_OPS_ADDR" help:"Address that its operation routes listen on; default: that of the API."`
	TLSCert string        `name:"tls-cert" setting:"ANNALS_TLS_CERT" help:"Certificate file (PEM) of the service; with it the check speaks HTTPS."`
	Ready   bool          `name:"ready" help:"Ask whether the service can take calls (/readyz) instead of whether it runs (/healthz)."`
	Timeout time.Duration `name:"timeout" default:"4s" help:"How long the service may take to answer."`
	JSON    bool          `name:"json" help:"Print the result as one JSON value, also of a check that fails."`
}

// Run prints one line if the service is ready, and fails with one line otherwise.
func (c *HealthcheckCmd) Run(ctx context.Context, env *Env) error {
	address, err := c.address()
	if err != nil {
		return err
	}
	err = askHealth(ctx, address, c.TLSCert, c.Timeout)
	if c.JSON {
		out := map[string]any{"url": address, "ok": err == nil, "error": nil}
		if err != nil {
			out["error"] = err.Error()
		}
		return errors.Join(printJSON(env.Stdout, out), err)
	}
	if err != nil {
		return err
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

// maxHealthAnswer bounds how many bytes of an answer are read.
const maxHealthAnswer = 64 << 10

// askHealth returns nil if an address answers 200 within the timeout. Its error is one line. With a certificate file,
// of the setting ANNALS_TLS_CERT, only the service that shows this certificate is believed.
func askHealth(ctx context.Context, address, certificate string, timeout time.Duration) error {
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
	body, err := io.ReadAll(io.LimitReader(res.Body, maxHealthAnswer))
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

// DoctorCmd is "annals doctor". It takes the settings of serve, and runs with those that cannot work.
type DoctorCmd struct {
	Settings
	JSON bool `name:"json" help:"Print the findings as one JSON value."`
}

// Run prints a line for each finding. It fails if something is broken.
func (c *DoctorCmd) Run(ctx context.Context, env *Env) error {
	in := doctor.Config{
		Service: server.Config{Data: datafolder.Folder{Dir: c.DataDir}}, Getenv: env.Getenv, Now: env.Now,
		Unknown: grammar.FindUnknown(env.Environ, env.Known),
	}
	if in.Now == nil {
		in.Now = time.Now
	}
	if err := errors.Join(env.Unread, c.Check()); err != nil {
		in.Wrong = strings.Split(err.Error(), "\n")
	} else if in.Service, err = c.config(); err != nil {
		return err
	}
	return printSummary(env.Stdout, doctor.Examine(ctx, in), c.JSON)
}
