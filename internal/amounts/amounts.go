// Package amounts reads the credits and caps of the command line.
package amounts

import (
	"fmt"
	"strconv"
	"strings"
)

// None is the argument for no cap.
const None = "none"

// Credits reads a number of credits with at most one decimal digit, such as 100, 0.5 or -20, as tenths.
func Credits(text string) (int64, error) {
	whole, digit, decimal := strings.Cut(text, ".")
	if !decimal {
		digit = "0"
	}
	n, err := strconv.ParseInt(whole+digit, 10, 64)
	if err != nil || len(digit) != 1 || strings.Trim(whole, "+-") == "" || strings.ContainsAny(digit, "+-") {
		return 0, fmt.Errorf("%q is not a number of credits: want at most one decimal digit, such as 100 or 0.5", text)
	}
	return n, nil
}

// CreditCap reads a cap in credits as tenths. Nil is no cap.
func CreditCap(text string) (*int64, error) {
	if text == None {
		return nil, nil //nolint:nilnil // no cap is no fault
	}
	n, err := Credits(text)
	if err == nil && n < 0 {
		err = fmt.Errorf("%q is not a cap: want 0 or more, or %s", text, None)
	}
	return &n, err
}

// Cap reads a cap in data points. Nil is no cap.
func Cap(text string) (*int64, error) {
	if text == None {
		return nil, nil //nolint:nilnil // no cap is no fault
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%q is not a cap: want 0 or more, or %s", text, None)
	}
	return &n, nil
}

// JoinNegative makes one argument of --grant and a number below 0, which the parser would take for a flag.
func JoinNegative(args []string) []string {
	joined := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		if args[i] == "--grant" && i+1 < len(args) && len(args[i+1]) > 1 && args[i+1][0] == '-' && args[i+1][1] != '-' {
			joined = append(joined, args[i]+"="+args[i+1])
			i++
			continue
		}
		joined = append(joined, args[i])
	}
	return joined
}
