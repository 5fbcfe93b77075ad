// Package elastictest connects tests to a real Elasticsearch, which
// deploy/elasticsearch/start.sh starts.
package elastictest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex/elastic"
)

// The variables that name a running server: its address with user and password, and a file with the
// certificates to trust.
const (
	Variable   = "ANNALS_TEST_ELASTICSEARCH"
	VariableCA = "ANNALS_TEST_ELASTICSEARCH_CA"
)

// Options returns options for an index of the test, which is removed at its end. Without a server it
// skips the test.
func Options(t testing.TB) elastic.Options {
	t.Helper()
	address := os.Getenv(Variable)
	if address == "" {
		t.Skipf("%s names no Elasticsearch; make test-elasticsearch starts one", Variable)
	}
	o := elastic.Options{
		URL: address, CA: os.Getenv(VariableCA), Name: "annals-test-" + strings.ReplaceAll(uuid.NewString(), "-", ""),
		Shards: 2,
	}
	t.Cleanup(func() { remove(t, o) })
	return o
}

// Indexes returns the indexes of an index.
func Indexes(t testing.TB, o elastic.Options) []string {
	t.Helper()
	var found map[string]any
	call(t, o, http.MethodGet, "/"+o.Name+"-*/_alias", nil, &found)
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	return names
}

// Remove removes one index by name, as an operator would by mistake.
func Remove(t testing.TB, o elastic.Options, name string) {
	t.Helper()
	call(t, o, http.MethodDelete, "/"+name, nil, nil)
}

func remove(t testing.TB, o elastic.Options) {
	for _, name := range Indexes(t, o) {
		Remove(t, o, name)
	}
}

// call makes a request by package net/http, so that a test does not depend on what it tests.
func call(t testing.TB, o elastic.Options, method, path string, in, out any) {
	t.Helper()
	u, err := url.Parse(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	}
	var text []byte
	if in != nil {
		if text, err = json.Marshal(in); err != nil {
			t.Fatal(err)
		}
	}
	request, err := http.NewRequestWithContext(
		context.WithoutCancel(t.Context()), method, u.JoinPath(path).String(), bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s %s: %d %s %v", method, path, answer.StatusCode, body, err)
	}
	if out != nil {
		if err := json.Unmarshal(body, out); err != nil {
			t.Fatal(err)
		}
	}
}
