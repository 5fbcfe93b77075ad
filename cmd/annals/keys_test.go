package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tokens"
)

func TestSigningKeysRotate(t *testing.T) {
	dir := t.TempDir()
	newer, older := tokens.Key{ID: uuid.New(), CreatedAt: time.Now()}, tokens.Key{ID: uuid.New()}
	operatortest.Serve(t, dir, operatorapi.RotateSigningKeys.Serve(
		func(context.Context, operatorapi.None) ([]tokens.Key, error) { return []tokens.Key{newer, older}, nil }))
	var out bytes.Buffer
	runtest.Must(t, (&SigningKeysRotateCmd{DataDir: dir}).Run(t.Context(), &out))
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], newer.ID.String()) || !strings.HasSuffix(lines[0], "signs after 5 s") ||
		!strings.HasPrefix(lines[1], older.ID.String()) {
		t.Errorf("printed %s", &out)
	}
	out.Reset()
	runtest.Must(t, (&SigningKeysRotateCmd{DataDir: dir, JSON: true}).Run(t.Context(), &out))
	if !strings.HasPrefix(out.String(), `[{"id":"`+newer.ID.String()) {
		t.Errorf("printed %s", &out)
	}
}
