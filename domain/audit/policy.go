package audit

import "strings"

// NoWitnesses are the lines of a tlog-policy that needs no witness.
const NoWitnesses = "quorum none\n"

// PolicyText is a tlog-policy file: the keys of a log, and the lines of its witnesses with their quorum.
func PolicyText(verifiers []string, witnesses string) string {
	var b strings.Builder
	for _, key := range verifiers {
		b.WriteString("log " + key + "\n")
	}
	b.WriteString(witnesses)
	return b.String()
}
