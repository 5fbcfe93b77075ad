package recall

import (
	"os"
	"strconv"
)

var averageLength = envf("AVG", 16)
var wholeShare = envf("WHOLE", 0.15)

func envf(n string, d float64) float64 {
	if v, err := strconv.ParseFloat(os.Getenv(n), 64); err == nil {
		return v
	}
	return d
}
