package audit

import "strings"

// PolicyText is a tlog-policy file: the keys of a log, and the witnesses with the quorum of another policy, "" for
// none.
func PolicyText(verifiers []string, witnesses string) string {
	var b strings.Builder
	for _, key := range verifiers {
		b.WriteString("log " + key + "\n")
	}
	if witnesses == "" {
		b.WriteString("quorum none\n")
	}
	for line := range strings.Lines(witnesses) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "log" && !strings.HasPrefix(fields[0], "#") {
			b.WriteString(strings.Join(fields, " ") + "\n")
		}
	}
	return b.String()
}
