// Package mail sends short texts to people by the mail server of the deployment.
package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/mail"
	"net/smtp"
	"net/url"
	"strings"
	"time"
)

// timeout bounds the whole exchange with the server.
const timeout = 30 * time.Second

// Server is a mail server that speaks TLS: from the start, or by STARTTLS. The zero value sends nothing.
type Server struct {
	addr, host     string
	implicit       bool
	user, password string
	from           string
	config         *tls.Config
}

// Parse reads an address such as smtps://user:password@mail.example.com?from=annals@example.com, with smtp:// for
// STARTTLS. An error does not repeat it, since it may hold a password.
func Parse(text string) (Server, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
		return Server{}, errors.New("is no address such as smtps://user:password@mail.example.com?from=annals@example.com")
	}
	from, err := mail.ParseAddress(u.Query().Get("from"))
	if err != nil {
		return Server{}, errors.New("has no sender: add ?from=annals@example.com")
	}
	s := Server{host: u.Hostname(), implicit: u.Scheme == "smtps", user: u.User.Username(), from: from.Address}
	s.password, _ = u.User.Password()
	port := u.Port()
	switch {
	case port == "" && s.implicit:
		port = "465"
	case port == "":
		port = "587"
	}
	s.addr, s.config = net.JoinHostPort(s.host, port), &tls.Config{ServerName: s.host, MinVersion: tls.VersionTLS12}
	return s, nil
}

// Set reports whether there is a server.
func (s Server) Set() bool { return s.addr != "" }

// Send sends a text to one address. The subject is ours and holds no input.
func (s Server) Send(ctx context.Context, to, subject, text string) error {
	address, err := mail.ParseAddress(to)
	if err != nil || address.Address != to {
		return errors.New("mail: the address cannot be written to")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := s.send(ctx, to, s.message(to, subject, text)); err != nil {
		return fmt.Errorf("send mail: %w", err)
	}
	return nil
}

func (s Server) message(to, subject, text string) string {
	header := []string{
		"From: " + s.from, "To: " + to, "Subject: " + mime.QEncoding.Encode("utf-8", subject),
		"Date: " + time.Now().UTC().Format(time.RFC1123Z), "MIME-Version: 1.0",
		"Content-Type: text/plain; charset=utf-8", "Content-Transfer-Encoding: 8bit", "Auto-Submitted: auto-generated",
	}
	return strings.Join(header, "\r\n") + "\r\n\r\n" + strings.ReplaceAll(text, "\n", "\r\n") + "\r\n"
}

func (s Server) send(ctx context.Context, to, message string) (err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if s.implicit {
		conn = tls.Client(conn, s.config)
	}
	c, err := smtp.NewClient(conn, s.host)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	defer func() { _ = c.Close() }()
	if !s.implicit {
		if err := c.StartTLS(s.config); err != nil {
			return err
		}
	}
	if s.user != "" {
		if err := c.Auth(smtp.PlainAuth("", s.user, s.password, s.host)); err != nil {
			return err
		}
	}
	if err := errors.Join(c.Mail(s.from), c.Rcpt(to)); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err = w.Write([]byte(message)); err != nil {
		return err
	}
	return errors.Join(w.Close(), c.Quit())
}
