package mail

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// listen serves one exchange of SMTP, and returns its address and what was sent in the end.
func listen(t *testing.T, implicit, starts bool) (addr string, roots *x509.CertPool, sent func() string) {
	t.Helper()
	https := httptest.NewUnstartedServer(nil)
	https.StartTLS()
	t.Cleanup(https.Close)
	config := &tls.Config{Certificates: https.TLS.Certificates}
	roots = x509.NewCertPool()
	roots.AddCert(https.Certificate())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	done := make(chan string, 1)
	go func() {
		var log strings.Builder
		defer func() { done <- log.String() }()
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		if implicit {
			conn = tls.Server(conn, config)
		}
		fmt.Fprint(conn, "220 test\r\n")
		lines, data := bufio.NewReader(conn), false
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			log.WriteString(line)
			switch verb := strings.ToUpper(strings.TrimSpace(line)); {
			case data && verb == ".":
				data = false
				fmt.Fprint(conn, "250 kept\r\n")
			case data:
			case strings.HasPrefix(verb, "EHLO"):
				extension := "AUTH PLAIN"
				if starts {
					extension = "STARTTLS"
				}
				fmt.Fprintf(conn, "250-test\r\n250 %s\r\n", extension)
			case verb == "STARTTLS" && starts:
				starts = false
				fmt.Fprint(conn, "220 go\r\n")
				conn = tls.Server(conn, config)
				lines = bufio.NewReader(conn)
			case strings.HasPrefix(verb, "AUTH"):
				fmt.Fprint(conn, "235 in\r\n")
			case verb == "DATA":
				data = true
				fmt.Fprint(conn, "354 send\r\n")
			case verb == "QUIT":
				fmt.Fprint(conn, "221 bye\r\n")
				return
			case verb == "STARTTLS":
				fmt.Fprint(conn, "502 no\r\n")
			default:
				fmt.Fprint(conn, "250 ok\r\n")
			}
		}
	}()
	return l.Addr().String(), roots, func() string { return <-done }
}

func TestSend_OverTLS(t *testing.T) {
	for _, scheme := range []string{"smtp", "smtps"} {
		addr, roots, sent := listen(t, scheme == "smtps", scheme == "smtp")
		s, err := Parse(scheme + "://user:secret@" + addr + "?from=annals@acme.example")
		runtest.Must(t, err)
		s.config.RootCAs = roots
		runtest.Must(t, s.Send(t.Context(), "ana@acme.example", "Confirm", "One\n.\nTwo"))
		got := sent()
		for _, want := range []string{
			"MAIL FROM:<annals@acme.example>", "RCPT TO:<ana@acme.example>", "Subject: Confirm\r\n", "\r\n\r\nOne\r\n..\r\nTwo\r\n.\r\n",
			"AUTH PLAIN",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: sent %q, want %q in it", scheme, got, want)
			}
		}
	}
}

// A password must not be sent in clear, nor to a server that another signed for.
func TestSend_RefusesWithoutTLS(t *testing.T) {
	addr, _, sent := listen(t, false, false)
	s, err := Parse("smtp://user:secret@" + addr + "?from=annals@acme.example")
	runtest.Must(t, err)
	if err := s.Send(t.Context(), "ana@acme.example", "Confirm", "text"); err == nil || strings.Contains(sent(), "AUTH") {
		t.Errorf("a server without TLS: %v", err)
	}
	addr, _, sent = listen(t, true, false)
	s, err = Parse("smtps://user:secret@" + addr + "?from=annals@acme.example")
	runtest.Must(t, err)
	if err := s.Send(t.Context(), "ana@acme.example", "Confirm", "text"); err == nil || strings.Contains(sent(), "AUTH") {
		t.Errorf("a server that nobody vouches for: %v", err)
	}
}

func TestSend_Addresses(t *testing.T) {
	s, err := Parse("smtps://127.0.0.1:1?from=annals@acme.example")
	runtest.Must(t, err)
	for _, to := range []string{"", "x", "a@b.c\r\nBcc: d@e.f", "a@b.c> NOTIFY=NEVER", "Ana <ana@acme.example>"} {
		if err := s.Send(t.Context(), to, "s", "t"); err == nil || !strings.Contains(err.Error(), "cannot be written to") {
			t.Errorf("%q: %v", to, err)
		}
	}
}

func TestParse_Addresses(t *testing.T) {
	for text, want := range map[string]string{
		"smtp://mail.example?from=a@b.example": "mail.example:587", "smtps://u:p@mail.example?from=a@b.example": "mail.example:465",
		"smtp://mail.example:25?from=a@b.example": "mail.example:25", "http://mail.example?from=a@b.example": "",
		"smtp://secret@mail.example": "", "smtp://?from=a@b.example": "", "smtp://secret:%zz@x?from=a@b.example": "",
	} {
		s, err := Parse(text)
		if s.addr != want || s.Set() != (want != "") || (err == nil) != (want != "") ||
			err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %q, %v", text, s.addr, err)
		}
	}
}
