package elastic

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/annals-project/annals/domain/recall"
)

// Options say where an index is and how it is used. URL is required.
type Options struct {
	// URL is the address of the server, such as https://host:9200, or those of several servers of one
	// cluster, separated by commas. It may hold user and password.
	URL string
	// User and Password replace those of the URL. Key is an API key, as Elasticsearch encodes it; it
	// excludes a user.
	User, Password, Key string
	// CA names a PEM file with the certificates to trust. Empty trusts those of the system.
	CA string
	// Name begins the names of indexes and aliases; "" means annals. Services that share a cluster need
	// different names.
	Name string
	// Shards is how many primary shards a new generation has; 0 means 4. A project is in one of them.
	Shards int
	// HoldNew makes searches of a new generation return ErrIncomplete until Publish.
	HoldNew bool
	// Analysis is the version of the analysis of new generations; 0 means that of recall.NewAnalyzer.
	Analysis int
	Log      *slog.Logger

	limits limits
}

// limits bound requests. Tests make them smaller.
type limits struct {
	// bulkOps and bulkBytes bound one bulk request, bulkTries its attempts.
	bulkOps, bulkBytes, bulkTries int
	// scan is the most documents that one search for deletes returns, rewrite that for moves.
	scan, rewrite int
	// search, write, admin and merge bound the time of a request.
	search, write, admin, merge time.Duration
	// dial bounds the time until a server accepts a connection.
	dial time.Duration
	// connect is how long Open retries a server that does not answer.
	connect time.Duration
	// pause is the first pause before a retry.
	pause time.Duration
	// body is the most bytes of an answer.
	body int64
}

// dialTime is how long a server may take to accept a connection.
const dialTime = 3 * time.Second

// writeTime is how long a request with documents may take.
const writeTime = 30 * time.Second

// ConnectTime is how long Open retries a server that does not answer.
const ConnectTime = 30 * time.Second

var defaultLimits = limits{
	bulkOps: 1000, bulkBytes: 5 << 20, bulkTries: 8,
	scan: 10_000, rewrite: 1000,
	search: 10 * time.Second, write: writeTime, admin: 30 * time.Second, merge: 10 * time.Minute,
	dial:    dialTime,
	connect: ConnectTime, pause: 50 * time.Millisecond, body: 128 << 20,
}

// namePattern is stricter than Elasticsearch, so that names of generations are unambiguous.
var namePattern = regexp.MustCompile(`^[a-z][a-z0-9_]*(-[a-z0-9_]+)*$`)

// maxName bounds a name. Elasticsearch allows 255 bytes in all.
const maxName = 100

// Validate returns why the options cannot be used, without their secrets, and which field is wrong: URL
// (with the credentials), CA or Name. It does not connect.
func (o Options) Validate() (field string, err error) {
	if _, err := o.address(); err != nil {
		return "URL", err
	}
	if _, err := o.tls(); err != nil {
		return "CA", err
	}
	if o.Name != "" && (len(o.Name) > maxName || !namePattern.MatchString(o.Name)) {
		return "Name", errors.New("the name must be lower-case letters, digits and dashes, and begin with a letter")
	}
	return "", nil
}

// Suspects returns the options that may be wrong if a call failed: fields as Validate names them, and User, Password
// and Key.
func (o Options) Suspects(err error) []string {
	refused, is := errors.AsType[*responseError](err)
	denied := is && (refused.status == http.StatusUnauthorized || refused.status == http.StatusForbidden)
	switch {
	case denied && o.Key != "":
		return []string{"Key"}
	case denied:
		return []string{"URL", "User", "Password"}
	case isTrustError(err):
		return []string{"CA"}
	default:
		return []string{"URL"}
	}
}

// address is where to connect, and with which credentials.
type address struct {
	urls           []*url.URL // without user and password, of one scheme
	user, password string
}

// maxAddresses bounds how many servers may be named.
const maxAddresses = 32

// addressBreak is what separates addresses. A password may contain a comma.
var addressBreak = regexp.MustCompile(`,\s*(https?://)`)

func (o Options) address() (a address, err error) {
	texts := strings.Split(addressBreak.ReplaceAllString(strings.TrimSpace(o.URL), "\n$1"), "\n")
	if len(texts) > maxAddresses {
		return address{}, fmt.Errorf("%d addresses are set, at most %d may be", len(texts), maxAddresses)
	}
	for _, text := range texts {
		if err := a.add(text); err != nil {
			return address{}, err
		}
	}
	if o.User != "" {
		a.user, a.password = o.User, ""
	}
	if o.Password != "" {
		a.password = o.Password
	}
	switch {
	case o.Key != "" && (a.user != "" || a.password != ""):
		return address{}, errors.New("an API key and a user are set: set one of them")
	case a.user == "" && a.password != "":
		return address{}, errors.New("a password is set without a user")
	case a.user != "" && a.password == "":
		return address{}, errors.New("a user is set without a password")
	case strings.ContainsAny(o.Key, " \r\n"):
		return address{}, errors.New("the API key must be its encoded form, without spaces")
	}
	return a, nil
}

// add adds the address of one more server.
func (a *address) add(text string) error {
	u, err := url.Parse(text)
	// The error of url.Parse repeats the address with its password.
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" ||
		u.Fragment != "" {
		return errors.New("the address must be like https://user:password@host:9200, several separated by commas")
	}
	user := u.User.Username()
	password, _ := u.User.Password()
	u.User = nil
	for _, other := range a.urls {
		switch {
		case other.Scheme != u.Scheme:
			return errors.New("the addresses must all be https, or all http")
		case *other == *u:
			return fmt.Errorf("the address %s is set twice", u)
		}
	}
	named, before := user != "" || password != "", a.user != "" || a.password != ""
	if named && before && (a.user != user || a.password != password) {
		return errors.New("the addresses name different users or passwords: name them in one")
	}
	if named {
		a.user, a.password = user, password
	}
	a.urls = append(a.urls, u)
	return nil
}

// tls returns which certificates to trust: those of the CA, or of the system.
func (o Options) tls() (*tls.Config, error) {
	// A session that is resumed spares the server most of the work of a new connection.
	trust := &tls.Config{MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	if o.CA == "" {
		return trust, nil
	}
	if !strings.HasPrefix(strings.ToLower(o.URL), "https:") {
		return nil, errors.New("a CA is set, but the address is not https")
	}
	pem, err := os.ReadFile(o.CA)
	if err != nil {
		return nil, fmt.Errorf("the CA cannot be read: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("the CA file holds no certificate in PEM format")
	}
	trust.RootCAs = roots
	return trust, nil
}

// withDefaults fills what is not set.
func (o Options) withDefaults() Options {
	o.Name = cmp.Or(o.Name, "annals")
	o.Shards = cmp.Or(o.Shards, 4)
	o.Analysis = cmp.Or(o.Analysis, recall.NewAnalyzer().Version())
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.limits == (limits{}) {
		o.limits = defaultLimits
	}
	return o
}

// formatNumber is how a generation keeps documents. Raise it with every change of the mapping, of the ids or of the
// documents: an index of a format before is removed, and a new one is built from the log.
//
// Each format has its own names: a program of another one that runs at the same time does not use what it cannot
// read, and removes nothing that is newer.
const formatNumber = 5

const formatMark = "v"

// format is part of the names of indexes and aliases.
var format = formatMark + strconv.Itoa(formatNumber)

// generation is one build of the index. Its zero value is none.
type generation struct {
	// index is the name of the index, id the one in its mapping.
	index, id string
	analysis  int
}

func (g generation) String() string { return "elasticsearch:" + g.index + "/" + g.id }

// The aliases; see doc.go.
func (o Options) live() string                   { return o.Name + "-" + format }
func (o Options) next() string                   { return o.live() + "-next" }
func (o Options) writeAlias(g generation) string { return o.Name + "-w-" + g.id }
func (o Options) readAlias(g generation) string  { return o.Name + "-r-" + g.id }

func (o Options) indexName(number int) string {
	return fmt.Sprintf("%s-%s-%06d", o.Name, format, number)
}

// indexPattern matches the indexes of all formats; its groups are the numbers of format and index.
func (o Options) indexPattern() (*regexp.Regexp, error) {
	return regexp.Compile(`^` + regexp.QuoteMeta(o.Name) + `-` + formatMark + `([0-9]+)-([0-9]{6,})$`)
}

// numberOf returns the number of an index; ok is false if it is none of this format or of one before.
func numberOf(pattern *regexp.Regexp, name string) (number int, ok bool) {
	groups := pattern.FindStringSubmatch(name)
	if groups == nil {
		return 0, false
	}
	of, err := strconv.Atoi(groups[1])
	if err != nil || of > formatNumber {
		return 0, false
	}
	number, err = strconv.Atoi(groups[2])
	return number, err == nil
}

// inUse are the aliases of a complete generation in use.
func (o Options) inUse(g generation) []string { return []string{o.live(), o.readAlias(g)} }

// newAliases are those of an empty generation in use.
func (x *Index) newAliases(g generation) []string {
	if x.options.HoldNew {
		return []string{x.options.live()}
	}
	return x.options.inUse(g)
}

// isUsed reports whether an alias is one of those that only a generation in use has, of any format.
func (o Options) isUsed(alias string) bool {
	if of, is := strings.CutPrefix(alias, o.Name+"-"+formatMark); is {
		_, err := strconv.Atoi(of)
		return err == nil
	}
	return strings.HasPrefix(alias, o.readAlias(generation{}))
}
