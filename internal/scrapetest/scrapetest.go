// Package scrapetest reads single metrics of a server, for the benchmarks and the tests.
package scrapetest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	timeLimit = 30 * time.Second
	maxBytes  = 64 << 20
)

// Metric reads one series of the server at a base address, by its name in the Prometheus text format. It returns 0 if
// there is no such series.
func Metric(ctx context.Context, base, series string) (value float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("read metric %s: %w", series, err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("read metric %s: %w", series, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxBytes))
	if err != nil {
		return 0, fmt.Errorf("read metric %s: %w", series, err)
	}
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("read metric %s: the server answered %d", series, res.StatusCode)
	}
	for line := range strings.Lines(string(text)) {
		if number, ok := strings.CutPrefix(line, series+" "); ok {
			if value, err = strconv.ParseFloat(strings.TrimSpace(number), 64); err != nil {
				return 0, fmt.Errorf("read metric %s: %w", series, err)
			}
			return value, nil
		}
	}
	return 0, nil
}
