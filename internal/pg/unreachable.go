package pg

import (
	"crypto/tls"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Plain returns the text of an error on one line. Where the driver lists every try to connect, it has each cause once.
func Plain(err error) string {
	text := err.Error()
	if failed, is := errors.AsType[*pgconn.ConnectError](err); is {
		text = strings.Replace(text, failed.Error(), causes(failed), 1)
	}
	return strings.Join(strings.Fields(text), " ")
}

// IsUnconnected reports whether an error is that of a connection that could not be made.
func IsUnconnected(err error) bool {
	_, is := errors.AsType[*pgconn.ConnectError](err)
	return is
}

// noTLS is what the driver reports of a try with TLS at a server without it. It tries again without TLS, so that is a
// cause only if it is the only one.
const noTLS = "server refused TLS connection"

// dialed is what the driver writes before the cause of a try, besides the address.
var dialed = regexp.MustCompile(`(dial error|server error|tls error|hostname resolving error): (dial \S+ \S+: |failed SASL auth: )?`)

// causes describes why no connection was made.
func causes(failed *pgconn.ConnectError) string {
	var found []string
	for line := range strings.Lines(failed.Unwrap().Error()) {
		if line = dialed.ReplaceAllString(strings.TrimSpace(line), ""); !slices.Contains(found, line) {
			found = append(found, line)
		}
	}
	if others := slices.DeleteFunc(slices.Clone(found), func(line string) bool {
		return strings.HasSuffix(line, noTLS)
	}); len(others) > 0 {
		found = others
	}
	return "user " + failed.Config.User + ", database " + failed.Config.Database + ": " + strings.Join(found, "; ")
}

// cures are what helps for the codes with which a server refuses a connection.
var cures = map[string]string{
	"28P01": "check the user and the password",
	"28000": "check the user and sslmode, or let pg_hba.conf of the server admit this user from this host",
	"3D000": "create the database with createdb, or name another",
	"57P03": "the server starts or stops: wait for it, or look at its log",
	"42501": "the role needs the right: GRANT CONNECT, CREATE ON DATABASE … TO …",
}

// Cure returns what an operator can do about the error of a connection, in terms of the address in the settings. It
// returns "" if that is not known.
func Cure(err error) string {
	if refused, is := errors.AsType[*pgconn.PgError](err); is {
		return cures[refused.Code]
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return "check the host, sslmode and sslrootcert"
	}
	if _, is := errors.AsType[*net.DNSError](err); is {
		return "check the host"
	}
	if _, is := errors.AsType[*net.OpError](err); is {
		return "start the server, or check host and port"
	}
	if strings.Contains(err.Error(), noTLS) {
		return "turn TLS on at the server, or set sslmode=disable"
	}
	return ""
}

// Explained is an error of a connection with the setting whose address may be wrong, and what can be done.
func Explained(err error, setting string) error {
	if err == nil {
		return nil
	}
	text := "the database that " + setting + " names cannot be used: " + Plain(err)
	if cure := Cure(err); cure != "" {
		text += " (" + setting + ": " + cure + ")"
	}
	return &explained{text, err}
}

type explained struct {
	text string
	err  error
}

// Error implements error.
func (e *explained) Error() string { return e.text }

// Unwrap returns the error of the driver.
func (e *explained) Unwrap() error { return e.err }
