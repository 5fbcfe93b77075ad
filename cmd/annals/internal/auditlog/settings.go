// Package auditlog is the settings of the audit log.
package auditlog

import (
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/commands/audit"
)

// Audit is the settings of "serve" about the audit log.
type Audit struct {
	AuditAnchor  string `name:"audit-anchor" setting:"ANNALS_AUDIT_ANCHOR" group:"Audit log" help:"Where the files of the audit log are copied to: a folder on another machine, or https://host/path below which files are stored by PUT; default: nowhere."`
	AuditToken   string `name:"audit-anchor-token-file" setting:"ANNALS_AUDIT_ANCHOR_TOKEN_FILE" group:"Audit log" help:"File with the bearer token for that server, if it needs one."`
	AuditPolicy  string `name:"audit-policy" setting:"ANNALS_AUDIT_POLICY" group:"Audit log" placeholder:"FILE" help:"Policy file (C2SP tlog-policy) with the witnesses that cosign checkpoints, and their addresses; default: no witness."`
	AuditPublic  string `name:"audit-public" setting:"ANNALS_AUDIT_PUBLIC" group:"Audit log" default:"off" help:"Whether the API serves checkpoints, tiles and keys of the audit logs of organizations without a key; never proofs."`
	AuditSeconds int    `name:"audit-seconds" setting:"ANNALS_AUDIT_SECONDS" group:"Audit log" default:"5" help:"Seconds between two looks for events that no checkpoint covers, 1 to 3600."`
}

// maxAuditSeconds is the longest time between two looks, in seconds.
const maxAuditSeconds = 3600

// ValidateAudit reports settings that cannot work.
func (a Audit) ValidateAudit(bad func(name, format string, args ...any)) {
	if _, err := audit.OpenPlace(a.AuditAnchor, a.AuditToken); a.AuditAnchor != "" && err != nil {
		bad("AUDIT_ANCHOR", "cannot be used: %v", err)
	}
	if a.AuditAnchor == "" && a.AuditToken != "" {
		bad("AUDIT_ANCHOR_TOKEN_FILE", "is set, but ANNALS_AUDIT_ANCHOR is not: remove it, or set that too")
	}
	if _, err := audit.ReadPolicy(a.AuditPolicy); a.AuditPolicy != "" && err != nil {
		bad("AUDIT_POLICY", "cannot be used: %v", err)
	}
	if a.AuditSeconds < 0 || a.AuditSeconds > maxAuditSeconds {
		bad("AUDIT_SECONDS", "is %d: want 1 to %d seconds, 0 for the default", a.AuditSeconds, maxAuditSeconds)
	}
}

// AuditConfig returns the configuration of the service.
func (a Audit) AuditConfig() server.AuditConfig {
	return server.AuditConfig{
		Anchor: a.AuditAnchor, TokenFile: a.AuditToken, Policy: a.AuditPolicy,
		Public: a.AuditPublic == "on", Every: time.Duration(a.AuditSeconds) * time.Second,
	}
}
