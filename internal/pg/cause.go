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

// origin is where the cause of an SQLSTATE, or of a class of them, lies.
type origin struct {
	code string // an SQLSTATE, or its first two characters
	// data is true if a value that was written or compared can be the cause.
	data bool
	// cause is in plain words what is wrong outside the data, and what helps; "" if the code alone is all
	// that is known.
	cause string
}

const (
	sharedConnection = "a pooler in transaction mode lost or doubled a prepared statement: " +
		"set default_query_exec_mode=cache_describe in ANNALS_POSTGRES, or use session mode"
	raisedOutside = "a trigger or a function that is not of this program raised it: remove it or repair it"
	missingObject = "something that this program made is missing or was changed: " +
		"restore it, or drop the schema and rebuild it"
)

// origins lists what data can cause; a code without an entry has another cause. Of several entries the longest
// code counts.
var origins = []origin{
	{code: "08", cause: "the connection failed"},
	{code: "21", data: true},
	{code: "22", data: true},
	{code: "23", data: true},
	{code: "23001", cause: "a foreign key that is not of this program refuses it: remove it"},
	{code: "23503", cause: "a foreign key that is not of this program refuses it: remove it"},
	{code: "25", cause: "the state of the session or transaction does not allow it"},
	{code: "25006", cause: "the session is read-only: make the database writable, or name the primary in ANNALS_POSTGRES"},
	{code: "26", cause: sharedConnection},
	{code: "28", cause: "the server refuses the role or the password of ANNALS_POSTGRES"},
	{code: "38", cause: raisedOutside},
	{code: "39", cause: raisedOutside},
	{code: "09", cause: raisedOutside},
	{code: "P0", cause: raisedOutside},
	{code: "3D", cause: "the database is missing"},
	{code: "3F", cause: missingObject},
	{code: "42501", cause: "the role of ANNALS_POSTGRES lacks a right: grant it, or make the role the owner again"},
	{code: "42P01", cause: missingObject},
	{code: "42703", cause: missingObject},
	{code: "42883", cause: missingObject},
	{code: "42704", cause: missingObject},
	{code: "42P10", cause: missingObject},
	{code: "42P05", cause: sharedConnection},
	{code: "53", cause: "the server lacks memory, disk or connections"},
	{code: "53100", cause: "the disk of the server is full"},
	{code: "53300", cause: "the server or the role has no free connection"},
	{code: "54", data: true}, // such as a row that is too large for its page or index
	{code: "54023", cause: missingObject},
	{code: "55", cause: "an object is locked or not ready"},
	{code: "57", cause: "an operator intervenes, or a timeout of the server ended the statement"},
	{code: "58", cause: "the server cannot read or write its files"},
	{code: "XX", cause: "the server reports damage or an error of its own"},
}

func originOf(e *pgconn.PgError) origin {
	if ofFunction(e) {
		return origin{cause: raisedOutside}
	}
	var found origin
	for _, o := range origins {
		if strings.HasPrefix(e.Code, o.code) && len(o.code) > len(found.code) {
			found = o
		}
	}
	return found
}

// ofFunction reports whether the error came out of a function in the database. This program makes none there.
func ofFunction(e *pgconn.PgError) bool {
	return strings.Contains(e.Where, "PL/") || strings.Contains(e.Where, "SQL function") || e.Routine == "exec_stmt_raise"
}

// CausedByData reports whether a value that was written or compared can be the cause of what a database refused.
// Otherwise the same values succeed once the cause is gone.
func CausedByData(e *pgconn.PgError) bool { return originOf(e).data }

// Cause returns in plain words why a database refused something, "" for a refusal that data caused or whose cause is
// not known. It quotes no value.
func Cause(e *pgconn.PgError) string { return originOf(e).cause }

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
