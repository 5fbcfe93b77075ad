// Command annals is the memory service and its command line in one binary.
package main

import (
	"os"
	_ "time/tzdata" // the zones of estimates, where the machine has none

	"github.com/annals-project/annals/cmd/annals/internal/signals"
)

func main() {
	os.Exit(run(signals.UntilStop(), os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
