package elastic

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
)

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
