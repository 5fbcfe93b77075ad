package elastic

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// An index of a format before is removed, one of a newer format or of another index is left alone.
func TestOptions_Names(t *testing.T) {
	o := Options{Name: "annals"}
	pattern, err := o.indexPattern()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{
		o.indexName(7): 7, "annals-v1-000012": 12, "annals-v5-1000000": 1_000_000,
		"annals-v6-000001": 0, "annals-v03x-000001": 0, "other-v5-000001": 0, "annals-other-v5-000001": 0, "annals-v5-next": 0,
	} {
		if number, ok := numberOf(pattern, name); number != want || ok != (want > 0) {
			t.Errorf("%s has the number %d, %t, want %d", name, number, ok, want)
		}
	}
	g := generation{id: "0c"}
	for alias, want := range map[string]bool{
		o.live(): true, o.readAlias(g): true, "annals-v1": true,
		o.next(): false, o.writeAlias(g): false, "annals": false, "other-v5": false,
	} {
		if got := o.isUsed(alias); got != want {
			t.Errorf("%s is used: %t", alias, got)
		}
	}
}

func TestOptions_Suspects(t *testing.T) {
	denied := fmt.Errorf("recall index: %w", &responseError{status: http.StatusUnauthorized})
	for name, c := range map[string]struct {
		key  string
		err  error
		want []string
	}{
		"wrong key":        {"a2V5", denied, []string{"Key"}},
		"wrong user":       {"", denied, []string{"URL", "User", "Password"}},
		"unknown CA":       {"", &tls.CertificateVerificationError{}, []string{"CA"}},
		"no answer":        {"", errors.New("no route to host"), []string{"URL"}},
		"a server's fault": {"", &responseError{status: http.StatusInternalServerError}, []string{"URL"}},
	} {
		if got := (Options{Key: c.key}).Suspects(c.err); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestIndexBreaker_RefusesAfterFailuresAndTriesAgain(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var b breaker
	for range breakerLimit - 1 {
		if !b.allow(now) {
			t.Fatal("refused before the limit")
		}
		b.failed(now)
	}
	if !b.allow(now) {
		t.Fatal("refused before the limit")
	}
	b.succeeded()
	for range breakerLimit {
		if !b.allow(now) {
			t.Fatal("a success does not count failures from 0 again")
		}
		b.failed(now)
	}
	if b.allow(now.Add(breakerPause - 1)) {
		t.Error("allowed during the pause")
	}
	now = now.Add(breakerPause)
	if first, second := b.allow(now), b.allow(now); !first || second {
		t.Error("want one try after the pause")
	}
	b.abandoned()
	if !b.allow(now) {
		t.Error("a try that was given up blocks the next")
	}
	b.failed(now)
	if b.allow(now) {
		t.Error("allowed after a failed try")
	}
	if now = now.Add(breakerPause); !b.allow(now) {
		t.Error("refused after the next pause")
	}
	b.succeeded()
	for range 2 {
		if !b.allow(now) {
			t.Error("refused after a success")
		}
	}
}
