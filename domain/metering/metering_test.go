package metering_test

import (
	"testing"
	"time"

	"github.com/annals-project/annals/domain/metering"
)

func TestIngestTenths(t *testing.T) {
	for size, want := range map[int64]int64{0: 10, 1: 10, 350: 10, 351: 20, 700: 20, 701: 30, 16 << 20: 479350} {
		if got := metering.IngestTenths(size); got != want {
			t.Errorf("IngestTenths(%d) = %d, want %d", size, got, want)
		}
	}
}

func TestMonth_UTC(t *testing.T) {
	at := time.Date(2026, 12, 31, 23, 30, 0, 0, time.FixedZone("", -3600))
	if got := metering.Month(at); got != "2027-01" {
		t.Errorf("Month = %s", got)
	}
}
