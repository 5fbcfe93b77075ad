package instant_test

import (
	"testing"
	"time"

	"github.com/annals-project/annals/domain/instant"
)

func TestParseMail(t *testing.T) {
	const want = "2025-06-03T08:15:30Z"
	for _, in := range []string{
		"Tue, 3 Jun 2025 10:15:30 +0200", "Tue, 03 Jun 2025 08:15:30 GMT", "3 Jun 2025 08:15:30 UT", "3 Jun 25 04:15:30 EDT",
		"Tue, 3 Jun 2025 10:15:30 +0200 (CEST)", "Tue, 03 Jun 2025 00:15:30 -0800", "Tue, 3 Jun 2025 08:15:30 utc",
	} {
		if at, err := instant.ParseMail(in); err != nil || at.Format(time.RFC3339Nano) != want {
			t.Errorf("%q is %v, %v", in, at, err)
		}
	}
	for _, in := range []string{
		"", "Tue", "Tue, 3 Jun 2025", "Tue, 3 Jun 2025 10:15:30", "Tue, 3 Jun 2025 10:15:30 CEST", "Tue, 3 Jun 2025 10:15:30 X",
		"Tue, 31 Jun 2025 10:15:30 +0200", "Tue, 3 Jun 2025 10:15:30 +0200 (CEST", "Tue, 3 Jun 2025 10:15:30 +2460", "3 Juni 2025 10:15:30 +0200",
	} {
		if at, err := instant.ParseMail(in); err == nil {
			t.Errorf("%q is %v", in, at)
		}
	}
}
