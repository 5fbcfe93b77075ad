package esdb_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/nodetest"
)

func TestCheckConnectionString_Accepted(t *testing.T) {
	ca, key, _ := nodetest.Files(t, "ca.pem", "x")
	for _, text := range []string{
		"esdb://localhost",
		"esdb://localhost/?tls=false",
		"esdb://h1:2113,h2,h3:1?tls=true",
		"esdb+discover://h1",
		"esdb+discover://admin:a%2Cb%40c%23@h1:2113,h2:2113,h3:2113?tls=true&tlsCAFile=" + ca,
		"esdb+discover://admin:a,b:c@h1:2113,h2:2113?tlsVerifyCert=false",
		"esdb+discover://[::1]:2113,[fe80::1]?keepAliveInterval=10000&keepAliveTimeout=5000",
		"esdb://h?userCertFile=" + ca + "&userKeyFile=" + key,
		"esdb://h?MAXDISCOVERATTEMPTS=3&discoveryInterval=0&gossipTimeout=1&defaultDeadline=5000&nodePreference=Leader",
	} {
		if err := esdb.CheckConnectionString(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A wrong connection string is one line that names the setting and no part of the credentials.
func TestCheckConnectionString_Refused(t *testing.T) {
	ca, _, _ := nodetest.Files(t, "ca.pem", "x")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                                      "begins with neither",
		"http://h":                              "begins with neither",
		"esdb://":                               "host as number 1 of 1",
		"esdb+discover://h1,,h2":                "host as number 2 of 3",
		"esdb://h1,h2:0":                        "port at host 2 of 2",
		"esdb://h1:70000":                       "port at host 1 of 1",
		"esdb://h1:2113/path":                   "a / after the hosts",
		"esdb://admin:sec/ret@h":                "a / after the hosts",
		"esdb://admin:sec#ret@h":                "%23",
		"esdb://admin:sec?ret@h":                "port at host 1 of 1",
		"esdb://admin:21?sec-ret@h":             "unknown setting",
		"esdb://admin:sec%zzret@h":              "%25",
		"esdb://admin@h":                        "no password",
		"esdb://:secret@h":                      "no user",
		"esdb://admin:secret@h?tls=false":       "TLS only",
		"esdb://h?tlsCaFil=x":                   `unknown setting "tlsCaFil"`,
		"esdb://h?tls=yes":                      "wrong tls: want true or false",
		"esdb://h?tls=true&TLS=false":           "tls twice",
		"esdb://h?tlsCAFile=/nowhere/ca.pem":    "/nowhere/ca.pem",
		"esdb://h?tlsCAFile=" + empty:           "holds no certificate",
		"esdb://h?userCertFile=" + ca:           "userKeyFile",
		"esdb://h?userCertFile=a&userKeyFile=b": "userCertFile or userKeyFile",
		"esdb://h?nodePreference=follower":      "leader",
		"esdb://h?keepAliveInterval=-1":         "wrong keepAliveInterval: want a number from 0 to 60000",
		"esdb://h?maxDiscoverAttempts=0":        "wrong maxDiscoverAttempts",
		"esdb://h?defaultDeadline=soon":         "wrong defaultDeadline",
		"esdb://h?gossipTimeout=5s":             "wrong gossipTimeout",
		"esdb://h?a=%zz":                        "name=value",
		"esdb://" + strings.Repeat("h,", 40):    "more than 32",
	} {
		err := esdb.CheckConnectionString(text)
		if err == nil {
			t.Errorf("%s was accepted", text)
			continue
		}
		if got := err.Error(); !strings.Contains(got, want) || strings.Contains(got, "\n") || strings.Contains(got, "sec") ||
			strings.Contains(got, "ret@") {
			t.Errorf("%s: %q, want a line with %q", text, got, want)
		}
	}
}
