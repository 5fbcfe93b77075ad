package fields_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/fields"
)

// What is private names its reader and no audience.
func TestDataPointOf_Private(t *testing.T) {
	for body, want := range map[string]string{
		`"private":true,"identity":"ana"`:                   "",
		`"private":false`:                                   "",
		`"private":null`:                                    "",
		`"private":false,"audience":"team"`:                 "",
		`"private":true`:                                    "needs the identity",
		`"private":true,"identity":null`:                    "needs the identity",
		`"private":true,"identity":"ana","audience":"team"`: "excludes an audience",
		`"private":true,"identity":"ana","audience":"me"`:   "excludes an audience",
		`"private":"true","identity":"ana"`:                 "want true or false, got",
		`"private":1,"identity":"ana"`:                      "want true or false, got",
	} {
		in, err := fields.Decode([]byte(`{"content":"x",`+body+`}`), "", fields.DataPointNames, fields.DataPointOf)
		f, refused := errors.AsType[*fault.Error](err)
		switch {
		case want == "" && (err != nil || in.Private != strings.Contains(body, ":true")):
			t.Errorf("%s: private %t, %v", body, in.Private, err)
		case want != "" && (!refused || f.Code != fault.CodeInvalidRequest || !strings.Contains(f.Msg, want)):
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}
