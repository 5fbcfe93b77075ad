package annals

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestBounded(t *testing.T) {
	if text, err := io.ReadAll(&bounded{strings.NewReader("12345"), 5}); err != nil || string(text) != "12345" {
		t.Errorf("as much as allowed: %q, %v", text, err)
	}
	var last final
	if _, err := io.ReadAll(&bounded{strings.NewReader("123456"), 5}); !errors.As(err, &last) {
		t.Errorf("one byte more: %v", err)
	}
}
