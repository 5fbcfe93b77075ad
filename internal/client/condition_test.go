package client_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/client"
)

// A server whose /readyz is on another address is not called one that is not ready for no reason.
func TestCondition_ReadyzElsewhere(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	is, err := c.Condition(t.Context())
	if err != nil || is.Ready || !strings.Contains(is.Why, "ANNALS_OPS_ADDR") {
		t.Errorf("got %+v, %v", is, err)
	}
}
