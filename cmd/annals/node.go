package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/logging"
	"github.com/annals-project/annals/eventstore/node"
)

// NodeCmd is "annals node": the event store alone, for services on other machines and for other clients.
type NodeCmd struct {
	DataDir      string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder; the log is in its folder log, where serve keeps it."`
	Addr         string `name:"addr" default:"127.0.0.1:2113" help:"Address to listen on."`
	Cert         string `name:"cert" placeholder:"FILE" help:"Certificate (PEM), with those that vouch for it."`
	Key          string `name:"key" placeholder:"FILE" help:"Private key (PEM) of the certificate."`
	PasswordFile string `name:"password-file" placeholder:"FILE" help:"File with the password of the user admin; others must not be able to read it."`
	Insecure     bool   `name:"insecure" help:"Serve everybody on this machine, without TLS and without a password."`
	LogLevel     string `name:"log-level" setting:"ANNALS_LOG_LEVEL" default:"info" help:"Least level that is logged: debug, info, warn or error."`
}

// Run serves until the context ends or the disk fails.
func (c *NodeCmd) Run(ctx context.Context, env *Env) (err error) {
	outliveOutput()
	if err := noCoreDumps(); err != nil {
		return err
	}
	if err := (datafolder.Folder{Dir: c.DataDir}).RefuseBackup(); err != nil {
		return err
	}
	level, err := (&Settings{LogLevel: c.LogLevel}).Level()
	if err != nil {
		return fmt.Errorf("--log-level is %q: want debug, info, warn or error", c.LogLevel)
	}
	cfg := node.Config{
		Dir: filepath.Join(c.DataDir, "log"), Addr: c.Addr, Insecure: c.Insecure, SystemStream: true,
		Logger: logging.New(env.Stderr, logging.Auto, level),
	}
	if err := c.secure(&cfg); err != nil {
		return err
	}
	n, err := node.Start(ctx, cfg)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("the address %s is in use: stop what listens there, or choose another with --addr", c.Addr)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if _, err := fmt.Fprintf(
		env.Stdout, "annals node is ready: %s\n", c.address(n.Connection(), cfg.Certificate),
	); err != nil {
		return fmt.Errorf("say where the node is: %w", err)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-n.Failed():
		return n.Err()
	}
}

// secure reads certificate and password.
func (c *NodeCmd) secure(cfg *node.Config) (err error) {
	given := 0
	for _, file := range []string{c.Cert, c.Key, c.PasswordFile} {
		if file != "" {
			given++
		}
	}
	switch {
	case c.Insecure && given > 0:
		return errors.New("--insecure excludes --cert, --key and --password-file")
	case c.Insecure:
		return nil
	case given < 3:
		return errors.New("a node needs --cert, --key and --password-file, or --insecure on a loopback address")
	}
	certificate, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return fmt.Errorf("load the certificate: %w", err)
	}
	cfg.Certificate = &certificate
	cfg.Password, err = readPassword(c.PasswordFile)
	return err
}

// address returns the connection string, and the place of its password. The password itself is not
// printed, since the output of a service is often stored.
func (c *NodeCmd) address(conn node.Connection, certificate *tls.Certificate) string {
	if c.Insecure {
		return conn.ConnectionString()
	}
	q := "?tls=true"
	if path, err := filepath.Abs(c.Cert); err == nil && selfSigned(certificate) {
		q += "&tlsCaFile=" + strings.ReplaceAll(url.QueryEscape(path), "%2F", "/")
	}
	return fmt.Sprintf("%s%s (user %s, password in %s)", conn.ConnectionString(), q, conn.Username, c.PasswordFile)
}

// selfSigned reports whether clients need the certificate to trust it.
func selfSigned(certificate *tls.Certificate) bool {
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	return err == nil && leaf.CheckSignature(leaf.SignatureAlgorithm, leaf.RawTBSCertificate, leaf.Signature) == nil
}

// longestPassword bounds what is read of a password file.
const longestPassword = 4096

// readPassword reads the one line of a file that other users cannot read.
func readPassword(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	const others fs.FileMode = 0o007
	if info.Mode().Perm()&others != 0 {
		return "", fmt.Errorf("every user of this machine may open the password file %s (mode %#o): chmod 600 it", path,
			info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, longestPassword))
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" || strings.ContainsAny(password, "\r\n") {
		return "", fmt.Errorf("the password file %s holds no password, or more than one line", path)
	}
	return password, nil
}
