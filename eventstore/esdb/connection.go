package esdb

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

const (
	defaultPort = "2113"
	// maxHosts is the most hosts of a connection string.
	maxHosts = 32
)

// These are the slowest keepalive pings that are accepted. Without pings a frozen server is not
// detected.
const (
	maxKeepAlive        = time.Minute
	maxKeepAliveTimeout = time.Minute
)

// CheckConnectionString returns the reason why Open would refuse a connection string, nil if it
// would not. It reads the files that the string names. The error is one line without any part of
// the credentials.
func CheckConnectionString(text string) error {
	_, err := parseConnection(text)
	return err
}

// connection is a connection string: how to connect, and to which hosts.
type connection struct {
	conf driver.Configuration
	// hosts are host:port. Without discovery, the only host is the server itself.
	hosts    []string
	discover bool
}

// parseConnection reads a connection string. It uses the parser of the driver for the settings
// only: with discovery by several hosts, that parser loses all of them but an empty one. It also
// ignores misspelt settings and quotes passwords in its errors.
func parseConnection(text string) (c connection, err error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found || scheme != "esdb" && scheme != "esdb+discover" {
		return c, errors.New("begins with neither esdb:// nor esdb+discover://")
	}
	if strings.Contains(rest, "#") {
		return c, errors.New("holds a #: write it as %23")
	}
	authority, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(authority, "/")
	if path != "" {
		return c, errors.New("holds a / after the hosts: in a password write it as %2F")
	}
	user, hosts := "", authority
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, hosts = authority[:at], authority[at+1:]
	}
	if c.hosts, err = parseHosts(hosts); err != nil {
		return c, err
	}
	if c.conf, err = parseSettings(query); err != nil {
		return c, err
	}
	if c.conf.Username, c.conf.Password, err = parseUser(user); err != nil {
		return c, err
	}
	if user != "" && c.conf.DisableTLS {
		return c, errors.New("names a user with tls=false: credentials are sent over TLS only")
	}
	c.discover = scheme == "esdb+discover" || len(c.hosts) > 1
	c.conf.Address = c.hosts[0]
	return c, nil
}

func parseUser(text string) (name, password string, err error) {
	if text == "" {
		return "", "", nil
	}
	name, password, found := strings.Cut(text, ":")
	if name == "" || !found || password == "" {
		return "", "", errors.New("has no user or no password before the @: want user:password@host")
	}
	if name, err = url.PathUnescape(name); err == nil {
		password, err = url.PathUnescape(password)
	}
	if err != nil {
		return "", "", errors.New("has a user or a password with a % that begins no escape: write it as %25")
	}
	return name, password, nil
}

// parseHosts returns host:port of each host. Its errors name hosts by their number and do not
// quote them, because an unescaped password may be among them.
func parseHosts(text string) ([]string, error) {
	all := strings.Split(text, ",")
	if len(all) > maxHosts {
		return nil, fmt.Errorf("names %d hosts, more than %d", len(all), maxHosts)
	}
	for i, host := range all {
		if !strings.Contains(host, ":") || strings.HasSuffix(host, "]") {
			host = host + ":" + defaultPort
		}
		name, port, err := net.SplitHostPort(host)
		if err != nil || name == "" || strings.ContainsAny(name, " \t%@") {
			return nil, fmt.Errorf("names no valid host as number %d of %d: want host:port", i+1, len(all))
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("names no valid port at host %d of %d: want host:port", i+1, len(all))
		}
		all[i] = net.JoinHostPort(name, port)
	}
	return all, nil
}

// knownSettings has a check of the value for each setting of a connection string, by its name in
// lower case.
var knownSettings = map[string]struct {
	name  string
	check func(value string) error
}{
	"tls":                 {"tls", isBool},
	"tlsverifycert":       {"tlsVerifyCert", isBool},
	"tlscafile":           {"tlsCAFile", isCertificateFile},
	"usercertfile":        {"userCertFile", nil},
	"userkeyfile":         {"userKeyFile", nil},
	"nodepreference":      {"nodePreference", isLeader},
	"maxdiscoverattempts": {"maxDiscoverAttempts", within(1, 1000)},
	"discoveryinterval":   {"discoveryInterval", within(0, 60_000)},
	"gossiptimeout":       {"gossipTimeout", within(1, 60)},
	"defaultdeadline":     {"defaultDeadline", within(1, 600_000)},
	"keepaliveinterval":   {"keepAliveInterval", within(0, int(maxKeepAlive/time.Millisecond))},
	"keepalivetimeout":    {"keepAliveTimeout", within(1, int(maxKeepAliveTimeout/time.Millisecond))},
}

func parseSettings(query string) (driver.Configuration, error) {
	var none driver.Configuration
	values, err := url.ParseQuery(query)
	if err != nil {
		return none, errors.New("has settings after the ? that are not name=value, joined by &")
	}
	seen := make(map[string]bool, len(values))
	for key, all := range values {
		setting, known := knownSettings[strings.ToLower(key)]
		if !known {
			if strings.Trim(strings.ToLower(key), "abcdefghijklmnopqrstuvwxyz") != "" {
				key = "" // perhaps the rest of a password with a ? in it
			}
			return none, fmt.Errorf("has an unknown setting %.40q; a ? in a password is written as %%3F", key)
		}
		if len(all) > 1 || seen[setting.name] {
			return none, fmt.Errorf("has the setting %s twice", setting.name)
		}
		seen[setting.name] = true
		if setting.check == nil {
			continue
		}
		if err := setting.check(all[0]); err != nil {
			return none, fmt.Errorf("has a wrong %s: %w", setting.name, err)
		}
	}
	conf, err := driver.ParseConnectionString("esdb://localhost?" + query)
	if err != nil {
		return none, fmt.Errorf("has wrong settings: %w", err)
	}
	if err := conf.Validate(); err != nil {
		return none, fmt.Errorf("has wrong settings: %w", err)
	}
	if conf.UserCertFile != "" {
		if _, err := tls.LoadX509KeyPair(conf.UserCertFile, conf.UserKeyFile); err != nil {
			return none, fmt.Errorf("has a wrong userCertFile or userKeyFile: %w", err)
		}
	}
	return *conf, nil
}

func isBool(value string) error {
	if _, err := strconv.ParseBool(strings.ToLower(value)); err != nil {
		return errors.New("want true or false")
	}
	return nil
}

func isLeader(value string) error {
	if !strings.EqualFold(value, "leader") {
		return errors.New("every call goes to the leader")
	}
	return nil
}

func within(least, most int) func(string) error {
	return func(value string) error {
		if n, err := strconv.Atoi(value); err != nil || n < least || n > most {
			return fmt.Errorf("want a number from %d to %d", least, most)
		}
		return nil
	}
}

func isCertificateFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return fmt.Errorf("%s holds no certificate in PEM", path)
	}
	return nil
}
