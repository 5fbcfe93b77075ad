package main

// maxStopDelay is the longest delay of a stop, in seconds.
const maxStopDelay = 300

// maxRetentionDays is the most days that bodies of calls are kept.
const maxRetentionDays = 365

// validateSwitches reports what is neither on nor off. Empty is the default of each.
func (s *Settings) validateSwitches(bad func(name, format string, args ...any)) {
	for _, o := range []struct{ name, value string }{
		{"PIPELINE", s.Pipeline},
		{"PROFILE", s.Profile},
		{"RECALL_FLOOR", s.Floor},
		{"OIDC_TRUST_EMAIL", s.TrustEmail},
		{"SIGN_UP", s.SignUp},
		{"REQUIRE_REASON", s.RequireReason},
		{"AUDIT_PUBLIC", s.AuditPublic},
	} {
		if o.value != "on" && o.value != "off" && o.value != "" {
			bad(o.name, "is %q: want on or off", o.value)
		}
	}
}

func (s *Settings) validateAmounts(bad func(name, format string, args ...any)) {
	if s.MinFreeDisk < 0 {
		bad("MIN_FREE_DISK", "is %d: want a number of MiB, 0 for none", s.MinFreeDisk)
	}
	if s.BulkItems < 0 {
		bad("BULK_BACKLOG_ITEMS", "is %d: want a number of items, 0 for the default", s.BulkItems)
	}
	if s.BulkMiB < 0 {
		bad("BULK_BACKLOG_MIB", "is %d: want a number of MiB, 0 for the default", s.BulkMiB)
	}
	if s.RateLimit != nil && *s.RateLimit < 0 {
		bad("RATE_LIMIT_PER_MINUTE", "is %d: want a number of requests, 0 for no limit", *s.RateLimit)
	}
	if s.Retention != nil && (*s.Retention < 0 || *s.Retention > maxRetentionDays) {
		bad("PAYLOAD_RETENTION_DAYS", "is %d: want 0 to %d days", *s.Retention, maxRetentionDays)
	}
	if s.StopDelay < 0 || s.StopDelay > maxStopDelay {
		bad("STOP_DELAY_SECONDS", "is %d: want 0 to %d seconds", s.StopDelay, maxStopDelay)
	}
}
