package environment

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFind(t *testing.T) {
	known := []string{"ANNALS_API_ADDR", "ANNALS_API_URL", "ANNALS_LOG_LEVEL", "ANNALS_DATA_DIR", "ANNALS_INDEX"}
	got := Find([]string{
		"PATH=/bin", "ANNALS_API_ADDR=x", "ANNALS_API_ADR=x", "ANNALS_LOGLEVEL=x", "ANNALS_DATADIR=", "ANNALS_SPEED=9",
		"ANNALS_PORT=tcp://10.0.0.1:8080", "ANNALS_READ_SERVICE_HOST=10.0.0.1", "ANNALS_READ_PORT_8080_TCP_ADDR=10.0.0.1",
		"ANNALS_SERVICE_PORT_API=8080", "ANNALS_TEST_BINARY=x",
	}, known)
	want := []Unknown{
		{"ANNALS_API_ADR", "ANNALS_API_ADDR"},
		{"ANNALS_DATADIR", "ANNALS_DATA_DIR"},
		{"ANNALS_LOGLEVEL", "ANNALS_LOG_LEVEL"},
		{"ANNALS_SPEED", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
