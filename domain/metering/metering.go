// Package metering prices what is ingested. Credits are counted in tenths, without rounding of
// floats.
package metering

import "time"

// BytesPerCredit is how many bytes of content one credit buys.
const BytesPerCredit = 350

// IngestTenths returns the price of a content with a number of bytes of UTF-8, in tenths of a
// credit: one credit per started 350 bytes, at least one.
func IngestTenths(size int64) int64 {
	credits := (size + BytesPerCredit - 1) / BytesPerCredit
	return max(credits, 1) * 10
}

// WebhookEventTenths is the price of an event that a webhook receives, in tenths of a credit. What it
// is ingested as costs its own price.
const WebhookEventTenths = 1

// Month returns the UTC calendar month of an instant, as "2006-01".
func Month(at time.Time) string { return at.UTC().Format("2006-01") }
