package main

import "github.com/annals-project/annals/cmd/annals/internal/auditcli"

// AuditCmd is the group "annals audit".
type AuditCmd struct {
	Status auditcli.StatusCmd `cmd:"" help:"Show how far the trees of the audit log are signed and copied."`
}
