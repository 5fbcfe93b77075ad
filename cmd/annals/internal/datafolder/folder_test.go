package datafolder

import (
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

func TestDecodeSecret_HexAndBase64(t *testing.T) {
	want := []byte("0123456789abcdef0123456789abcdef")
	for _, text := range []string{
		hex.EncodeToString(want), base64.StdEncoding.EncodeToString(want),
		base64.RawURLEncoding.EncodeToString(want),
	} {
		got, err := DecodeSecret(text)
		if err != nil || string(got) != string(want) {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
}

// A path that can be no folder is refused with the setting that names it.
func TestFolder_IsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	runtest.Must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if err := (Folder{Dir: dir}).RefuseBackup(); err == nil || !strings.Contains(err.Error(), "is a file") ||
			!strings.Contains(err.Error(), "ANNALS_DATA_DIR") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
