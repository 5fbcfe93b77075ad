package main

import "github.com/annals-project/annals/cmd/annals/internal/auditcli"

// AuditCmd is the group "annals audit".
type AuditCmd struct {
	Status auditcli.StatusCmd `cmd:"" help:"Show how far the trees of the audit log are signed and copied."`
	Show   auditcli.ShowCmd   `cmd:"" help:"Show what a request was shown, by its read record: each text as the log has it, or that it was erased, and whether who asked could read it then."`
}
