package grammar

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInForce(t *testing.T) {
	type people struct {
		SMTP string `setting:"ANNALS_SMTP_URL"`
	}
	got := InForce(&struct {
		Addr     string `setting:"ANNALS_API_ADDR" default:"127.0.0.1:8080"`
		Dir      string `setting:"ANNALS_DATA_DIR" default:"./data"`
		Postgres string `setting:"ANNALS_POSTGRES" default:"embedded"`
		Key      string `setting:"ANNALS_MODEL_KEY"`
		Password string `setting:"ANNALS_INDEX_PASSWORD"`
		Secret   string `setting:"ANNALS_OIDC_CLIENT_SECRET"`
		TLS      string `setting:"ANNALS_TLS_KEY"`
		Free     int    `setting:"ANNALS_MIN_FREE_DISK" default:"1024"`
		Rate     *int   `setting:"ANNALS_RATE_LIMIT_PER_MINUTE"`
		Days     *int   `setting:"ANNALS_PAYLOAD_RETENTION_DAYS"`
		Other    string
		people
	}{
		Addr: "127.0.0.1:8080", Dir: "/data", Postgres: "postgres://u:hidden@h/d?sslmode=require&password=hidden",
		Key: "hidden", Password: "hidden", Secret: "hidden", TLS: "key.pem", Free: 10, Rate: new(0), Other: "x",
		people: people{"smtps://u:hidden@mail.example.com?from=a@example.com"},
	})
	want := map[string]string{
		"ANNALS_DATA_DIR": "/data", "ANNALS_POSTGRES": "postgres://…@h/d?sslmode=require&password=…",
		"ANNALS_MODEL_KEY": "(set)", "ANNALS_INDEX_PASSWORD": "(set)", "ANNALS_OIDC_CLIENT_SECRET": "(set)",
		"ANNALS_TLS_KEY": "key.pem", "ANNALS_MIN_FREE_DISK": "10", "ANNALS_RATE_LIMIT_PER_MINUTE": "0",
		"ANNALS_SMTP_URL": "smtps://…@mail.example.com?from=a@example.com",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFindUnknown(t *testing.T) {
	known := []string{"ANNALS_API_ADDR", "ANNALS_API_URL", "ANNALS_LOG_LEVEL", "ANNALS_DATA_DIR", "ANNALS_INDEX"}
	got := FindUnknown([]string{
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
