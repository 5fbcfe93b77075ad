package httpx

import "time"

// SetWait changes how long bodies wait for their share.
func SetWait(b *Bodies, wait time.Duration) { b.wait = wait }

// SetGrace changes how long a body may take to arrive, beside what its length allows.
func SetGrace(b *Bodies, grace time.Duration) { b.grace = grace }
